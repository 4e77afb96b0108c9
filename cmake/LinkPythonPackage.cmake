# Makes <build>/python an importable torch_tenon with its entry point: every entry of the source package
# linked, links of deleted entries removed, a dist-info beside it. Runs at each build.
# In: PACKAGE_SOURCE, PACKAGE_DIR, VERSION.

file(MAKE_DIRECTORY "${PACKAGE_DIR}")
file(GLOB old LIST_DIRECTORIES true "${PACKAGE_DIR}/*")
foreach(entry ${old})
  if(IS_SYMLINK "${entry}" AND NOT EXISTS "${entry}")
    file(REMOVE "${entry}")
  endif()
endforeach()
file(GLOB entries LIST_DIRECTORIES true RELATIVE "${PACKAGE_SOURCE}" "${PACKAGE_SOURCE}/*")
foreach(entry ${entries})
  if(NOT entry STREQUAL "__pycache__")
    file(CREATE_LINK "${PACKAGE_SOURCE}/${entry}" "${PACKAGE_DIR}/${entry}" SYMBOLIC)
  endif()
endforeach()

cmake_path(GET PACKAGE_DIR PARENT_PATH site)
cmake_path(GET PACKAGE_SOURCE PARENT_PATH sources)
file(CREATE_LINK "${sources}/tenon" "${site}/tenon" SYMBOLIC)  # the log's name
set(info "${site}/torch_tenon-${VERSION}.dist-info")
file(CONFIGURE OUTPUT "${info}/METADATA" CONTENT "Metadata-Version: 2.1
Name: torch-tenon
Version: ${VERSION}
")
file(CONFIGURE OUTPUT "${info}/entry_points.txt" CONTENT "[torch_dynamo_backends]
tenon = torch_tenon.backend:tenon
")
file(CONFIGURE OUTPUT "${info}/INSTALLER" CONTENT "tenon-build\n")
