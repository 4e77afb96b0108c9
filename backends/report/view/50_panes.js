'use strict';
// The panes that are lists: overview, costs, steps, remarks, source.

const nameLink = (app, name) => {
  const i = app.instructionNamed(name);
  return el('span', {class: 'name'}, i ? el('a', {onclick: () => app.go(i)}, name) : name);
};
const sourceText = (text) => cut(text.replace(/^.*\/(?=[^/]*\/[^/]*$)/, '…/'), 70);

class CostsPane {
  constructor(graph, app) { Object.assign(this, {graph, app}); }

  // Achieved (or estimated) speed over intensity, under the roof of one thread's streaming and arithmetic.
  roofline() {
    const {graph, app} = this, t = graph.target;
    const points = graph.steps.filter((s) => !s.control && s.flops > 0 && s.bytes > 0)
      .map((s) => ({s, x: s.flops / s.bytes, y: s.flops / (s.once || s.estimateOnce || 1)}));
    if (points.length === 0) return null;
    const W = 560, H = 250, left = 52, bottom = 34;
    const xs = points.map((p) => p.x).concat([0.05, 2 * t.flops_per_ns / t.bytes_per_ns]),
        ys = points.map((p) => p.y).concat([t.flops_per_ns * 1.5, t.bytes_per_ns * 0.05]);
    const range = (v) => [Math.log10(Math.min(...v)) - 0.15, Math.log10(Math.max(...v)) + 0.15];
    const [x0, x1] = range(xs), [y0, y1] = range(ys);
    const X = (v) => left + (Math.log10(v) - x0) / (x1 - x0) * (W - left - 14), Y = (v) => 14 +
        (y1 - Math.log10(v)) / (y1 - y0) * (H - 14 - bottom);
    const picture = svg('svg', {class: 'chart', viewBox: `0 0 ${W} ${H}`, id: 'roofline'});
    for (let e = Math.ceil(x0); e <= x1; ++e) picture.append(svg('line',
        {class: 'axis', x1: X(10 ** e), x2: X(10 ** e), y1: 14, y2: H - bottom}),
        svg('text', {x: X(10 ** e), y: H - bottom + 14, 'text-anchor': 'middle'}, 10 ** e >= 1 ? 10 ** e : (10 ** e).toFixed(-e)));
    for (let e = Math.ceil(y0); e <= y1; ++e) picture.append(svg('line',
        {class: 'axis', x1: left, x2: W - 14, y1: Y(10 ** e), y2: Y(10 ** e)}),
        svg('text', {x: left - 6, y: Y(10 ** e) + 4, 'text-anchor': 'end'}, 10 ** e >= 1 ? 10 ** e : (10 ** e).toFixed(-e)));
    const ridge = t.flops_per_ns / t.bytes_per_ns, low = 10 ** x0, high = 10 ** x1;
    picture.append(svg('path', {d: `M${X(low)} ${Y(low * t.bytes_per_ns)}L${X(ridge)} ${Y(t.flops_per_ns)}L${X(high)} ${Y(t.flops_per_ns)}`,
        fill: 'none', stroke: 'var(--hot)', 'stroke-width': 1.5}),
                   svg('text', {x: W - 16, y: H - 4, 'text-anchor': 'end'}, 'flops per byte'),
                       svg('text', {x: left, y: 10}, 'GFLOP/s' + (graph.measured ? '' : ' (estimated)') +
                       '; line: what one thread is assumed to do'));
    for (const p of points) {
      const dot = svg('circle', {cx: X(p.x), cy: Y(p.y), r: 3 + 9 * Math.sqrt(p.s.share), fill: p.s.kind === 'call' ? 'var(--contraction)' :
          'var(--elementwise)', 'fill-opacity': 0.65,
        style: 'cursor: pointer', onclick: () => app.goStep(p.s)});
      picture.append(hover(dot,
          `${p.s.name}\n${p.x.toPrecision(3)} flops per byte, ${p.y.toPrecision(3)} GFLOP/s, ` +
          `${shareText(p.s.share)} of the ${graph.measured ? 'run' : 'estimate'}`));
    }
    return picture;
  }

  show(main) {
    const {graph, app} = this, steps = graph.steps.filter((s) => !s.control), most = Math.max(1e-9, ...steps.map((s) => s.share));
    const kinds = [...groupBy(steps, (s) => s.kind === 'library' || s.kind === 'call' && s.reason.startsWith('library') ? 'library calls' :
        s.kind === 'call' ? 'framework calls' : s.kind === 'kernel' ? 'kernels' : s.kind === 'copy' ? 'copies' : s.kind)];
    const byKind = table([
      {title: 'what', cell: ([k]) => k},
      {title: 'steps', cell: ([, l]) => l.length, number: true},
      {title: 'share', cell: ([, l]) => shareText(sum(l, (s) => s.share)), number: true},
      {title: graph.measured ? 'time' : 'estimate', cell: ([, l]) => timeText(sum(l, (s) => graph.measured ? s.ns : s.estimate)),
          number: true},
      {title: 'bytes', cell: ([, l]) => bytesText(sum(l, (s) => s.bytes * s.executions)), number: true},
      {title: 'flops', cell: ([, l]) => countText(sum(l, (s) => s.flops * s.executions)), number: true},
    ], kinds.sort((a, b) => sum(b[1], (s) => s.share) - sum(a[1], (s) => s.share)));
    const once = (s) => s.once || 0;
    const columns = [
      {title: 'step', cell: (s) => s.position, key: (s) => s.position, number: true},
      {title: 'instruction', cell: (s) => nameLink(app, s.name), key: (s) => s.name},
      {title: 'kind', cell: (s) => s.op || (s.kernel === undefined ? s.kind : graph.program.kernels[s.kernel].symbol), key: (s) => s.op ||
          s.kind},
      {title: 'share', class: 'barcell', cell: (s) => [el('span', {class: 'bar', style: `width:${(90 * s.share / most).toFixed(1)}px`}),
          ' ' + shareText(s.share)], key: (s) => s.share},
      graph.measured && {title: 'time', cell: (s) => timeText(s.ns), key: (s) => s.ns, number: true},
      steps.some((s) => s.executions !== 1) && {title: 'runs', cell: (s) => s.executions.toFixed(s.executions % 1 ? 1 : 0), key: (s) =>
          s.executions, number: true},
      {title: 'estimate', cell: (s) => timeText(s.estimate), key: (s) => s.estimate, number: true},
      {title: 'bytes', cell: (s) => s.bytes ? bytesText(s.bytes) : '', key: (s) => s.bytes, number: true},
      {title: 'flops', cell: (s) => s.flops ? countText(s.flops) : '', key: (s) => s.flops, number: true},
      graph.measured && {title: 'GB/s', cell: (s) => once(s) && s.bytes ? (s.bytes / once(s)).toFixed(1) : '', key: (s) => once(s) ?
          s.bytes / once(s) : 0, number: true},
      graph.measured && {title: 'GFLOP/s', cell: (s) => once(s) && s.flops ? (s.flops / once(s)).toFixed(1) : '', key: (s) => once(s) ?
          s.flops / once(s) : 0, number: true},
      {title: 'bound by', cell: (s) => s.bytes || s.flops ? s.roof : '', key: (s) => s.roof},
      {title: 'source', cell: (s) => el('span', {class: 'dim'}, sourceText(s.source)), key: (s) => s.source},
    ].filter(Boolean);
    main.replaceChildren(el('div', {class: 'pane'},
      el('div', {class: 'columns'}, el('div', {}, el('h3', {}, 'by kind'), byKind,
        el('p', {class: 'dim'}, graph.measured ? 'Times are means of the profiled runs, per run of the program. ' :
            'Nothing was measured: shares are of the estimate. ',
          `The estimate is one thread's: the larger of bytes at ${graph.target.bytes_per_ns} GB/s ` +
          `and flops at ${graph.target.flops_per_ns} GFLOP/s.`)),
        el('div', {}, el('h3', {}, 'roofline'), this.roofline() || el('p', {class: 'dim'}, 'No step has known flops.'))),
      el('h3', {}, 'steps'),
      table(columns, steps, {sortedBy: 3, limit: 100, row: (tr, s) => app.stepRow(tr, s)})));
  }
}

class StepsPane {
  constructor(graph, app) { Object.assign(this, {graph, app}); }
  show(main) {
    const {graph, app} = this, p = graph.program;
    const values = (list) => list.map((v, k) => [k ? ' ' : '',
        hover(el('a', {onclick: (e) => (e.stopPropagation(), app.selectValue(graph.values[v]))}, 'v' + v),
        `${graph.values[v].kind} ${graph.values[v].name || ''}`)]);
    const columns = [
      {title: 'step', cell: (s) => s.position, number: true},
      {title: p.tier === 'native' ? 'instruction' : 'ATen node', cell: (s) =>
          el('span', {style: `padding-left:${14 * s.depth}px`}, nameLink(app, s.name))},
      {title: 'runs', cell: (s) => el('span', {class: 'name'}, s.op ||
          (s.kernel !== undefined ? p.kernels[s.kernel].symbol : s.kind +
          (s.regions ? ' ' + s.regions.map((r) => p.regions[r].name || 'r' + r).join(', ') : '')))},
      {title: 'why', cell: (s) => s.kind === 'call' || s.kind === 'library' ? s.reason : s.kind === 'kernel' ?
          el('span', {class: 'name dim'}, cut(p.kernels[s.kernel].plan.split(' phases=')[0], 60)) : s.depth === 0 &&
          p.regions[s.region].name === 'commit' ? 'write-back' : ''},
      graph.launches() > 0 && {title: 'launch', cell: (s) => s.grid ? el('span', {class: 'name'}, ((l) =>
          `${l.grid} by ${l.block}` + (l.shared ? `, ${bytesText(l.shared)} shared` : ''))(graph.launch(s))) : ''},
      graph.launches() > 0 && {title: 'occupancy', cell: (s) => s.grid ? shareText(graph.launch(s).share || 0) : '', number: true},
      {title: 'reads', cell: (s) => values(s.reads)},
      {title: 'writes', cell: (s) => values(s.writes)},
      graph.measured && {title: 'time', cell: (s) => timeText(s.ns), number: true},
      {title: 'source', cell: (s) => el('span', {class: 'dim'}, sourceText(s.source))},
    ].filter(Boolean);
    main.replaceChildren(el('div', {class: 'pane'},
      p.tier === 'native' ? null : el('div', {class: 'notice'},
          `This graph runs as an eager program, step by step through the framework: ${p.reason}`),
      table(columns, graph.steps, {row: (tr, s) => app.stepRow(tr, s)})));
  }
}

class RemarksPane {
  constructor(graph, app) { Object.assign(this, {graph, app, pass: null, kind: null, text: ''}); }
  show(main) {
    const all = this.graph.remarks, list = el('div');
    const chips = (field) => [...groupBy(all, (r) => r[field] || '–')].sort().map(([value, rows]) => {
      const button = el('button', {onclick: () => { this[field] = this[field] === value ? null : value; draw(); }}, `${value} `,
          el('span', {class: 'dim'}, rows.length));
      button.update = () => button.className = this[field] === value ? 'on' : '';
      return button;
    });
    const passes = chips('pass'), kinds = chips('kind');
    const columns = [
      {title: 'pass', cell: (r) => r.pass, key: (r) => r.pass},
      {title: 'kind', cell: (r) => r.kind, key: (r) => r.kind},
      {title: 'instruction', cell: (r) => nameLink(this.app, r.instruction || r.op || ''), key: (r) => r.instruction || r.op || ''},
      {title: 'what', cell: (r) => [r.reason, r.numbers ? el('div', {class: 'dim'},
          Object.entries(r.numbers).map(([k, v]) =>
          `${k} ${Number.isInteger(v) && v > 9999 ? countText(v) : +v.toPrecision(4)}`).join(' · ')) : null], key: (r) => r.reason},
      {title: 'source', cell: (r) => el('span', {class: 'dim'}, sourceText(r.source || '')), key: (r) => r.source || ''},
    ];
    const draw = () => {
      for (const b of passes.concat(kinds)) b.update();
      const needle = this.text.toLowerCase();
      const rows = all.filter((r) => (!this.pass || (r.pass || '–') === this.pass) && (!this.kind || (r.kind || '–') === this.kind) &&
          (!needle || JSON.stringify(r).toLowerCase().includes(needle)));
      list.replaceChildren(rows.length ? table(columns, rows) : el('p', {class: 'dim'}, 'No remark.'));
    };
    main.replaceChildren(el('div', {class: 'pane'}, el('div', {class: 'filters'}, el('span', {class: 'label'}, 'pass'), passes,
        el('span', {class: 'label'}, 'kind'), kinds,
      el('input', {placeholder: 'text', value: this.text, oninput: (e) => { this.text = e.target.value; draw(); }})), list));
    draw();
  }
}

class SourcePane {
  constructor(graph, app) { Object.assign(this, {graph, app}); }
  static lines(graph) {
    const lines = new Map();
    const module = graph.modules[0];
    for (const i of module ? module.instructions : []) {
      if (!i.source) continue;
      if (!lines.has(i.source)) lines.set(i.source, {source: i.source, instructions: [], steps: []});
      lines.get(i.source).instructions.push(i);
    }
    for (const s of graph.steps) {
      const source = s.source.split(' @ ').pop();
      if (!source.includes(':')) continue;
      if (!lines.has(source)) lines.set(source, {source, instructions: [], steps: []});
      lines.get(source).steps.push(s);
    }
    return [...lines.values()];
  }
  show(main) {
    const {graph, app} = this, lines = SourcePane.lines(graph), texts = graph.json.source_lines || {};
    const place = (l) => { const at = l.source.lastIndexOf(':'); return {file: l.source.slice(0, at), line: Number(l.source.slice(at + 1))};
        };
    const files = groupBy(lines, (l) => place(l).file), share = (l) => sum(l.steps, (s) => s.control ? 0 : s.share);
    const sections = [...files].sort((a, b) => sum(b[1], share) - sum(a[1], share)).map(([file, rows]) => el('div', {class: 'source-file'},
      el('h3', {style: 'text-transform:none'}, file, ` · ${shareText(sum(rows, share))}`),
      rows.sort((a, b) => place(a).line - place(b).line).map((l) => el('div', {},
        el('span', {class: 'num dim'}, place(l).line),
        el('span', {}, share(l) > 0 ? [el('span', {class: 'bar', style: `width:${Math.max(1, 50 * share(l)).toFixed(1)}px`}), ' ' +
            shareText(share(l))] : ''),
        el('code', {}, texts[l.source] || el('span', {class: 'dim'},
            [...new Set(l.instructions.map((i) => i.op_name).filter(Boolean))].slice(0, 3).join(' '))),
        el('span', {}, l.instructions.slice(0, 12).map((i) => [nameLink(app, i.name), ' ']), l.instructions.length > 12 ?
            el('span', {class: 'dim'}, `and ${l.instructions.length - 12} more`) : null,
          l.instructions.length ? null : l.steps.map((s) => [nameLink(app, s.name), ' ']))))));
    main.replaceChildren(el('div', {class: 'pane'}, sections.length ?
        [el('p', {class: 'dim'}, 'A fused kernel counts for the line of its last instruction.'), sections]
      : el('p', {class: 'dim'}, 'No instruction says where it comes from.')));
  }
}

class OverviewPane {
  constructor(graph, app) { Object.assign(this, {graph, app}); }
  show(main) {
    const g = this.graph, p = g.program, json = g.json, module = g.modules[0];
    const number = (title, text) => text === '' || text === undefined ? null :
        el('div', {class: 'card-number'}, el('b', {}, text), el('span', {class: 'dim'}, title));
    const kinds = groupBy(g.steps, (s) => s.kind), of = (k) => (kinds.get(k) || []).length;
    const phases = p ? p.compile_ms : [], compileMs = sum(phases, ([, ms]) => ms), slowest = Math.max(1e-9, ...phases.map(([, ms]) => ms));
    const passes = json.passes || [], slowestPass = Math.max(1e-9, ...passes.map((x) => x.ms));
    const first = Object.entries(report.model && report.model.first_call_s || {}), longest = Math.max(1e-9, ...first.map(([, v]) => v));
    const bar = (value, most) => el('span', {class: 'bar', style: `width:${(120 * value / most).toFixed(1)}px`});
    const shapes = (title, rows, name) => rows && rows.length ? [el('h3', {}, title), table([
      {title: '#', cell: (r) => rows.indexOf(r), number: true}, {title: 'name', cell: (r) => el('span', {class: 'name'}, name(r))},
      {title: 'shape', cell: (r) => el('span', {class: 'name'}, r.shape || '')},
          {title: 'kind', cell: (r) => r.kind + (r.mutated ? ', written' : '')}], rows, {limit: 20})] : null;
    main.replaceChildren(el('div', {class: 'pane'},
      g.error ? el('div', {class: 'error'}, g.error) : null,
      p && p.tier !== 'native' ? el('div', {class: 'notice'}, `Eager program: ${p.reason}`) : null,
      el('div', {class: 'cards'},
        number('instructions', module ? module.instructions.length : ''),
            number('before the passes', g.modules[1] ? g.modules[1].instructions.length : ''),
        p ? [number('kernel steps', of('kernel')), number('distinct kernels', p.kernels.length), number('framework calls', of('call')),
            number('copies', of('copy')), g.launches() > 0 ? number('launches', g.launches()) : null] : null,
        number('flops', g.flops() ? countText(g.flops()) : ''), number('bytes moved', g.bytes() === undefined ? '' : bytesText(g.bytes())),
        p ? [number('arena', typeof p.memory.arena === 'number' ? bytesText(p.memory.arena) : 'dynamic'),
            number('code', bytesText(p.memory.code)), number('compile', timeText(compileMs * 1e6))] : null,
        g.profile && g.profile.calls ? number(`a run, mean of ${g.profile.calls}, ${g.profile.threads} threads`,
            timeText(g.profile.run_ns / g.profile.calls)) : null,
        number('target', g.target.name)),
      el('div', {class: 'columns'},
        el('div', {}, phases.length ? [el('h3', {}, 'compile time by phase'),
            table([{title: 'phase', cell: ([n]) => n}, {title: 'ms', cell: ([, ms]) => ms.toFixed(2), number: true, key: ([, ms]) => ms},
            {title: '', cell: ([, ms]) => bar(ms, slowest)}], phases)] : null,
          first.length ? [el('h3', {}, 'first call of the model, CPU seconds'),
            table([{title: 'phase', cell: ([n]) => n}, {title: 's', cell: ([, v]) => v.toFixed(2), number: true, key: ([, v]) => v},
            {title: '', cell: ([, v]) => bar(v, longest)}], first)] : null,
          passes.length ? [el('h3', {}, 'passes'), table([{title: 'pass', cell: (x) => x.name},
              {title: 'changed', cell: (x) => x.changed ? 'yes' : ''},
              {title: 'ms', cell: (x) => x.ms.toFixed(3), number: true, key: (x) => x.ms},
              {title: '', cell: (x) => bar(x.ms, slowestPass)}], passes)] : null),
        el('div', {}, p ? [shapes('inputs', p.inputs, (r) => r.name),
            shapes('outputs', p.outputs, (r) => r.kind === 'fresh' ? '' : `${r.kind} ${r.index}`)] : null,
          report.model && report.model.breaks && report.model.breaks.length ?
              [el('h3', {}, 'graph breaks of the model'), el('ul', {}, report.model.breaks.map((b) => el('li', {}, b)))] : null))));
  }
}

class KernelsPane {
  constructor(graph, app) { Object.assign(this, {graph, app}); }
  show(main) {
    const {graph, app} = this;
    main.replaceChildren(el('div', {class: 'pane'}, graph.program.kernels.map((k, n) => {
      const code = graph.code[k.symbol] || {}, users = graph.steps.filter((s) => s.kernel === n);
      return el('div', {class: 'kernel', 'data-kernel': k.symbol},
          el('h3', {style: 'text-transform:none'}, k.symbol, ` · ${users.length} steps · ${shareText(sum(users, (s) => s.share))}`),
        el('div', {}, users.slice(0, 20).map((s) => [nameLink(app, s.name), ' ']), users.length > 20 ? `and ${users.length - 20} more` :
            ''),
        users.length > 0 && users[0].grid ? el('p', {class: 'launch'}, ((l) => `launch: grid ${l.grid}, block ${l.block}` +
            (l.shared ? `, ${bytesText(l.shared)} shared` : '') + (l.occupancy ? `; occupancy at most ${l.occupancy}` : ''))(
            graph.launch(users[0]))) : null,
        el('pre', {class: 'wrap'}, k.plan),
        code.llvm ? el('details', {}, el('summary', {}, `LLVM IR, ${code.llvm.split('\n').length} lines`), el('pre', {}, code.llvm)) : null,
        code.assembly ? el('details', {}, el('summary', {}, `assembly, ${code.assembly.split('\n').length} lines`),
            el('pre', {}, code.assembly)) : null);
    })));
  }
}
