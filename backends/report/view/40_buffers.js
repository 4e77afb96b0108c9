'use strict';
// Memory over time: x = position in the order of the steps, y = offset in the arena, a rectangle per live range.

const LANES = ['lent', 'output', 'slot', 'constant', 'input'];

class BuffersPane {
  constructor(graph, app) {
    Object.assign(this, {graph, app, from: 0, to: Math.max(1, graph.steps.length)});
    this.arena = graph.values.filter((v) => v.kind === 'arena' && v.first >= 0);
    this.size = Math.max(1, ...this.arena.map((v) => typeof v.offset === 'number' ? v.offset + v.bytes : 0));
    this.live = new Array(graph.steps.length).fill(0);
    for (const v of this.arena) {
      if (typeof v.bytes === 'number') for (let p = v.first; p <= v.last; ++p) this.live[p] += v.bytes;
    }
    this.peak = this.live.reduce((best, bytes, p) => bytes > this.live[best] ? p : best, 0);
  }

  // One color per family of what writes the buffer, so that neighbours can be told apart by it and by their shade.
  color(v) {
    const module = this.graph.modules[0];
    const writer = module && this.graph.steps.find((s) => s.writes.includes(v.number));
    const i = writer && module.byName.get(writer.name);
    const kinds = i && i.calls.length ? i.calls.flatMap((c) =>
        module.computations[c].instructions.map((k) => module.instructions[k].family)) : i ? [i.family] : [];
    const family = ['contraction', 'reduction', 'indexing', 'elementwise'].find((f) => kinds.includes(f));
    return `var(--${family || (writer && writer.op ? 'contraction' : 'movement')})`;
  }

  describe(v) {
    const steps = this.graph.steps;
    const at = (p) => steps[p] ? `${p} ${steps[p].name}` : '–';
    return `${v.name || 'v' + v.number}\nv${v.number} · ${v.kind}${v.offset === undefined ? '' : ` at ${v.offset.toLocaleString()}`} · ` +
        `${bytesText(v.bytes)}\nalive from step ${at(v.first)}\nto step ${at(v.last)}`;
  }

  chart() {
    const W = 1180, left = 74, right = 12, top = 18, H = Math.max(140, Math.min(420, 60 + this.arena.length * 14)), below = 90;
    const x = (p) => left + (p - this.from) / (this.to - this.from) * (W - left - right);
    const y = (bytes) => top + H - bytes / this.size * H;
    const picture = svg('svg', {class: 'chart', viewBox: `0 0 ${W} ${top + H + below}`, id: 'arena'});
    const clip = svg('g', {});
    picture.append(svg('defs', {}, svg('clipPath', {id: 'inside'},
        svg('rect', {x: left, y: 0, width: W - left - right, height: top + H + below}))));
    clip.setAttribute('clip-path', 'url(#inside)');
    for (let k = 0; k <= 4; ++k) {
      picture.append(svg('line', {class: 'axis', x1: left, x2: W - right, y1: y(this.size * k / 4), y2: y(this.size * k / 4)}),
                     svg('text', {x: left - 6, y: y(this.size * k / 4) + 4, 'text-anchor': 'end'},
                         bytesText(Math.round(this.size * k / 4))));
    }
    for (const v of this.arena) {
      if (typeof v.offset !== 'number' || v.bytes === 0) continue;
      const x0 = x(v.first), w = Math.max(1, x(v.last + 1) - x0), h = Math.max(1, y(v.offset) - y(v.offset + v.bytes));
      const rect = svg('rect', {class: 'live' + (this.app.value === v.number ? ' selected' : ''), x: x0, y: y(v.offset + v.bytes), width: w,
          height: h,
        fill: this.color(v), 'fill-opacity': 0.65 + 0.3 * (v.number % 3) / 2, 'data-value': v.number, onclick: () =>
            this.app.selectValue(v)});
      clip.append(hover(rect, () => this.describe(v)));
      const letters = Math.floor((Math.min(w, x(this.to) - Math.max(x0, left)) - 8) / 6.2);
      if (h >= 13 && letters >= 4) clip.append(svg('text', {class: 'inside', x: Math.max(x0, left) + 4, y: y(v.offset + v.bytes / 2) + 3.5},
          cut(v.name || `v${v.number}`, letters)));
    }
    // Live bytes below, on the same scale of time.
    const base = top + H + 58, most = Math.max(1, ...this.live);
    let area = `M${x(0)} ${base}`;
    this.live.forEach((bytes, p) => area += `L${x(p)} ${base - bytes / most * 44}L${x(p + 1)} ${base - bytes / most * 44}`);
    clip.append(svg('path', {class: 'area', d: area + `L${x(this.live.length)} ${base}Z`}));
    picture.append(svg('text', {x: left - 6, y: base - 36, 'text-anchor': 'end'}, bytesText(most)),
        svg('text', {x: left - 6, y: base, 'text-anchor': 'end'}, 'live'));
    const px = (x(this.peak) + x(this.peak + 1)) / 2, side = px > W * 0.7 ? -1 : 1;
    clip.append(svg('line', {class: 'peak', x1: px, x2: px, y1: top - 6, y2: base}),
                svg('text', {x: px + 5 * side, y: top - 7, 'text-anchor': side < 0 ? 'end' : 'start'},
                    `peak ${bytesText(this.live[this.peak] || 0)} at step ${this.peak} ` +
                    `${cut((this.graph.steps[this.peak] || {}).name || '', 50)}`));
    const every = Math.max(1, Math.ceil((this.to - this.from) / 16));
    for (let p = Math.ceil(this.from / every) * every; p < this.to; p += every) {
      picture.append(svg('text', {x: (x(p) + x(p + 1)) / 2, y: base + 16, 'text-anchor': 'middle'}, p));
    }
    picture.append(svg('text', {x: W - right, y: base + 28, 'text-anchor': 'end'}, 'step'));
    picture.append(clip);
    picture.addEventListener('wheel', (e) => {
      e.preventDefault();
      const box = picture.getBoundingClientRect(), n = this.graph.steps.length;
      const at = this.from + ((e.clientX - box.left) / box.width * W - left) / (W - left - right) * (this.to - this.from);
      const f = Math.exp(e.deltaY * 0.0015), span = Math.min(n, Math.max(4, (this.to - this.from) * f));
      this.from = Math.max(0, Math.min(n - span, at - (at - this.from) * f));
      this.to = this.from + span;
      picture.replaceWith(this.chart());
    }, {passive: false});
    return picture;
  }

  // What has memory of its own beside the arena: a lane each.
  lanes() {
    const rows = this.graph.values.filter((v) => ['output', 'slot', 'input', 'constant'].includes(v.kind) && v.first >= 0);
    const most = 40, shown = rows.sort((a, b) => LANES.indexOf(a.kind) - LANES.indexOf(b.kind) || a.first - b.first ||
        b.bytes - a.bytes).slice(0, most);
    if (shown.length === 0) return null;
    const W = 1180, left = 210, right = 12, row = 15, n = Math.max(1, this.graph.steps.length), x = (p) => left +
        p / n * (W - left - right);
    const picture = svg('svg', {class: 'chart', viewBox: `0 0 ${W} ${shown.length * row + 12}`, id: 'lanes'});
    shown.forEach((v, k) => {
      const y = 6 + k * row;
      picture.append(svg('text', {x: left - 8, y: y + 11, 'text-anchor': 'end'},
          cut(`${v.kind === 'slot' ? 'tensor' : v.kind} ${v.name.replace(/^(output|constant|input) (?=\d)/, '')}`, 34)),
        hover(svg('rect', {class: 'live' + (this.app.value === v.number ? ' selected' : ''), x: x(v.first), y: y + 2,
            width: Math.max(2, x(v.last + 1) - x(v.first)), height: row - 4, rx: 2,
          fill: `var(--${v.kind === 'output' ? 'indexing' : v.kind === 'slot' ? 'framework' : 'data'})`, 'data-value': v.number,
              onclick: () => this.app.selectValue(v)}), () => this.describe(v)));
    });
    return [el('h3', {}, 'beside the arena: outputs, framework tensors, inputs, constants'), picture,
      rows.length > most ? el('p', {class: 'dim'}, `${rows.length - most} more are in the table.`) : null];
  }

  show(main) {
    const graph = this.graph, kinds = groupBy(graph.values, (v) => v.kind);
    const total = (kind) => sum(kinds.get(kind) || [], (v) => typeof v.bytes === 'number' ? v.bytes : 0);
    const number = (title, text) => el('div', {class: 'card-number'}, el('b', {}, text), el('span', {class: 'dim'}, title));
    const arenaBytes = graph.program.memory.arena;
    const rows = graph.values.filter((v) => v.kind !== 'error_word');
    main.replaceChildren(el('div', {class: 'pane'},
      el('div', {class: 'cards'}, number('arena', typeof arenaBytes === 'number' ? bytesText(arenaBytes) : 'by sizes at run time'),
          number('live at the peak', bytesText(this.live[this.peak] || 0)),
        number('inputs', bytesText(total('input'))), number('outputs', bytesText(total('output'))),
            number('constants', bytesText(total('constant'))),
        number(`in ${(kinds.get('slot') || []).length} framework tensors`, bytesText(total('slot')))),
      this.arena.length ? [el('h3', {}, 'arena: offset over steps'), this.chart(),
          el('p', {class: 'dim'}, 'The wheel zooms in time; a click selects what writes the buffer.')]
        : el('p', {class: 'dim'}, 'No value lives in the arena.'),
      this.lanes(),
      el('h3', {}, 'all values'),
      table([
        {title: 'value', cell: (v) => 'v' + v.number, key: (v) => v.number, number: true},
        {title: 'kind', cell: (v) => v.kind, key: (v) => v.kind},
        {title: 'written by, or name', cell: (v) => el('span', {class: 'name'}, v.name), key: (v) => v.name},
        {title: 'bytes', cell: (v) => bytesText(v.bytes), key: (v) => v.bytes, number: true},
        {title: 'offset', cell: (v) => v.offset === undefined ? '' : v.offset.toLocaleString(), key: (v) => v.offset || 0, number: true},
        {title: 'first step', cell: (v) => v.first < 0 ? '–' : v.first, key: (v) => v.first, number: true},
        {title: 'last step', cell: (v) => v.last < 0 ? '–' : v.last, key: (v) => v.last, number: true},
      ], rows, {limit: 100, row: (tr, v) => {
        tr.dataset.value = v.number;
        if (this.app.value === v.number) tr.className = 'selected';
        tr.addEventListener('click', () => this.app.selectValue(v));
      }})));
  }
}
