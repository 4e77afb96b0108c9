// The files of backends/report/view/, as the build found them (cmake/EmbedText.cmake).
#pragma once

#include <string_view>

namespace tenon {

std::string_view ViewPage();    // page.html, with {{title}}, {{style}}, {{script}}, {{data}}
std::string_view ViewStyle();   // style.css
std::string_view ViewScript();  // *.js in the order of their names

}  // namespace tenon
