'use strict';
// The last profiled run: every step from its begin to its end, loops above what they run; below, the pieces on their threads.

class TimelinePane {
  constructor(graph, app) {
    Object.assign(this, {graph, app});
    this.events = graph.profile.trace.map(([number, begin, end]) => ({step: graph.counters.get(number), begin, end}));
    this.pieces = (graph.profile.pieces || []).map(([number, thread, begin, end]) =>
        ({step: graph.counters.get(number), thread, begin, end}));
    this.threads = 1 + Math.max(-1, ...this.pieces.map((p) => p.thread));
    this.end = Math.max(1, ...this.events.map((e) => e.end));
    this.from = 0;
    this.to = this.end;
    this.rows = 1 + Math.max(0, ...this.events.map((e) => e.step.depth));
  }

  chart() {
    const W = 1180, row = 34, lane = 18, top = 8, lanes = top + this.rows * row, H = lanes + this.threads * lane + 26;
    const x = (t) => (t - this.from) / (this.to - this.from) * W;
    const picture = svg('svg', {class: 'chart', viewBox: `0 0 ${W} ${H}`, id: 'timeline'});
    for (let k = 0; k <= 8; ++k) {
      const t = this.from + (this.to - this.from) * k / 8;
      picture.append(svg('line', {class: 'axis', x1: x(t), x2: x(t), y1: 0, y2: H - 20}),
          svg('text', {x: Math.max(2, Math.min(W - 2, x(t))), y: H - 6, 'text-anchor': k === 0 ? 'start' : k === 8 ? 'end' : 'middle'},
          timeText(t) || '0'));
    }
    for (const e of this.events) {
      if (e.end < this.from || e.begin > this.to) continue;
      const s = e.step, w = Math.max(0.6, x(e.end) - x(e.begin)), y = top + s.depth * row;
      const color = s.control ? 'var(--control)' : s.kind === 'call' || s.kind === 'library' ? 'var(--contraction)' : s.kind === 'copy' ?
          'var(--movement)' : 'var(--elementwise)';
      const rate = (amount) => (amount / (e.end - e.begin)).toFixed(1);
      const speed = s.bytes && !s.control ? `\n${rate(s.bytes)} GB/s, ${rate(s.flops)} GFLOP/s` : '';
      picture.append(hover(svg('rect', {class: 'live', x: x(e.begin), y, width: w, height: row - 6, fill: color, onclick: () =>
          this.app.goStep(s)}),
        () => `${s.name}${s.op ? '  ' + s.op : ''}\n${timeText(e.end - e.begin)} from ${timeText(e.begin) || '0'}` +
            `${speed}\n${s.source}`));
      const begin = Math.max(0, x(e.begin)), letters = Math.floor((Math.min(W, x(e.end)) - begin - 8) / 6.2);
      if (letters >= 4) picture.append(svg('text', {class: 'inside', x: begin + 4, y: y + row / 2 + 1}, cut(s.name, letters)));
    }
    for (const p of this.pieces) {
      if (p.end < this.from || p.begin > this.to) continue;
      const width = Math.max(0.6, x(p.end) - x(p.begin));
      picture.append(hover(svg('rect', {class: 'piece', x: x(p.begin), y: lanes + p.thread * lane, width, height: lane - 4,
        fill: 'var(--elementwise)', onclick: () => this.app.goStep(p.step)}),
        () => `a piece of ${p.step.name} on thread ${p.thread}\n${timeText(p.end - p.begin)} from ${timeText(p.begin) || '0'}`));
    }
    for (let t = 0; t < this.threads; ++t) {
      const name = t === 0 ? 'thread 0, the caller' : `thread ${t}`;
      picture.append(svg('text', {class: 'inside', x: 4, y: lanes + (t + 0.75) * lane - 2}, name));
    }
    picture.addEventListener('wheel', (e) => {
      e.preventDefault();
      const box = picture.getBoundingClientRect(), at = this.from + (e.clientX - box.left) / box.width * (this.to - this.from);
      const f = Math.exp(e.deltaY * 0.0015), span = Math.min(this.end, Math.max(this.end / 20000, (this.to - this.from) * f));
      this.from = Math.max(0, Math.min(this.end - span, at - (at - this.from) * f));
      this.to = this.from + span;
      picture.replaceWith(this.chart());
    }, {passive: false});
    return picture;
  }

  show(main) {
    const busy = sum(this.events.filter((e) => e.step.depth === 0), (e) => e.end - e.begin);
    main.replaceChildren(el('div', {class: 'pane'}, el('h3', {}, 'the last profiled run'), this.chart(),
      el('p', {class: 'dim'},
          `${this.events.length} steps in ${timeText(this.end)}; between them ${shareText(1 - busy / this.end)}. The wheel zooms.`,
          this.events.length >= 20000 ? ' Only the first 20,000 are kept.' : ''),
      el('h3', {}, 'the longest'),
      table([
        {title: 'step', cell: (e) => e.step.position, number: true, key: (e) => e.step.position},
        {title: 'name', cell: (e) => nameLink(this.app, e.step.name), key: (e) => e.step.name},
        {title: 'what', cell: (e) => e.step.op || e.step.kind, key: (e) => e.step.op || e.step.kind},
        {title: 'began', cell: (e) => timeText(e.begin) || '0', number: true, key: (e) => e.begin},
        {title: 'took', cell: (e) => timeText(e.end - e.begin), number: true, key: (e) => e.end - e.begin},
        {title: 'share', class: 'barcell', cell: (e) => [el('span',
            {class: 'bar', style: `width:${(90 * (e.end - e.begin) / this.end).toFixed(1)}px`}), ' ' +
            shareText((e.end - e.begin) / this.end)], key: (e) => e.end - e.begin},
        {title: 'source', cell: (e) => el('span', {class: 'dim'}, sourceText(e.step.source)), key: (e) => e.step.source},
      ], this.events.filter((e) => !e.step.control), {sortedBy: 4, limit: 20, row: (tr, e) => this.app.stepRow(tr, e.step)})));
  }
}
