'use strict';
// Elements, numbers, tooltips. Text from the report only ever becomes text nodes: nothing in it can be markup.

const SVG = 'http://www.w3.org/2000/svg';

function el(tag, attributes, ...children) {
  return fill(document.createElement(tag), attributes, children);
}
function svg(tag, attributes, ...children) {
  return fill(document.createElementNS(SVG, tag), attributes, children);
}
function fill(node, attributes, children) {
  for (const [key, value] of Object.entries(attributes || {})) {
    if (value === undefined || value === null || value === false) continue;
    if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (key === 'class') node.setAttribute('class', value);
    else node.setAttribute(key, value);
  }
  for (const child of children.flat(Infinity)) {
    if (child === undefined || child === null || child === false) continue;
    node.append(child instanceof Node ? child : document.createTextNode(String(child)));
  }
  return node;
}

function scaled(value, units, base) {
  let k = 0;
  while (Math.abs(value) >= base && k + 1 < units.length) value /= base, ++k;
  const digits = k === 0 && Number.isInteger(value) ? 0 : Math.abs(value) < 10 ? 2 : Math.abs(value) < 100 ? 1 : 0;
  return value.toFixed(digits) + units[k];
}
const bytesText = (n) => typeof n === 'number' ? scaled(n, [' B', ' KiB', ' MiB', ' GiB', ' TiB'], 1024) : String(n ?? '');
const countText = (n) => typeof n === 'number' ? scaled(n, ['', ' k', ' M', ' G', ' T'], 1000) : '';
const timeText = (ns) => typeof ns === 'number' && ns > 0 ? scaled(ns, [' ns', ' µs', ' ms', ' s'], 1000) : '';
const shareText = (x) => (100 * x).toFixed(x < 0.0995 ? 1 : 0) + ' %';
const cut = (text, n) => text.length <= n ? text : text.slice(0, n - 1) + '…';

const tip = el('div', {class: 'tip'});
function hover(node, text) {
  node.addEventListener('mousemove', (e) => {
    tip.textContent = typeof text === 'function' ? text() : text;
    tip.style.display = 'block';
    tip.style.left = Math.min(e.clientX + 14, innerWidth - tip.offsetWidth - 8) + 'px';
    tip.style.top = Math.min(e.clientY + 14, innerHeight - tip.offsetHeight - 8) + 'px';
  });
  node.addEventListener('mouseleave', () => tip.style.display = 'none');
  return node;
}

// A table. columns: [{title, cell(row) -> text or node, number, key(row) -> sorted by}]; clicking a title sorts.
function table(columns, rows, {sortedBy = -1, limit = 300, row: decorate} = {}) {
  const body = el('tbody');
  let order = rows.slice(), by = sortedBy, down = true, shown = limit;
  const sort = () => {
    const key = columns[by] && columns[by].key;
    if (!key) return;
    order.sort((a, b) => {
      const x = key(a), y = key(b);
      return (x < y ? -1 : x > y ? 1 : 0) * (down ? -1 : 1);
    });
  };
  const draw = () => {
    body.replaceChildren(...order.slice(0, shown).map((row) => {
      const tr = el('tr', {}, columns.map((c) => el('td', {class: c.number ? 'num' : c.class}, c.cell(row))));
      if (decorate) decorate(tr, row);
      return tr;
    }));
    if (order.length > shown) {
      body.append(el('tr', {}, el('td', {colspan: columns.length}, el('a', {onclick: () => (shown = Infinity, draw())},
        `${order.length - shown} more`))));
    }
  };
  const head = columns.map((c, k) => el('th', {
    class: (c.number ? 'num ' : '') + (c.key ? 'sort' : ''),
    onclick: () => { if (!c.key) return; down = by === k ? !down : true; by = k; sort(); draw(); },
  }, c.title));
  sort();
  draw();
  return el('table', {}, el('thead', {}, el('tr', {}, head)), body);
}
