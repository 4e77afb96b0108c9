'use strict';
// The right-hand side: all that is known of what was clicked.

function facts(rows) {
  return el('dl', {}, rows.filter((r) => r && r[1] !== undefined && r[1] !== null && r[1] !== '').map(([k, v]) =>
      [el('dt', {}, k), el('dd', {}, v)]));
}

function stepFacts(app, graph, s) {
  const kernel = s.kernel === undefined ? null : graph.program.kernels[s.kernel], code = kernel ? graph.code[kernel.symbol] || {} : {};
  const launch = graph.launch(s);
  const valueLinks = (list) => list.map((v) => [el('a', {onclick: () => app.selectValue(graph.values[v])}, 'v' + v), ' ']);
  return [
    el('h3', {}, `step ${s.position}: ${s.control ? s.kind : s.op ? s.op : kernel ? 'kernel ' + kernel.symbol : s.kind}`),
    facts([
      ['name', s.name],
      ['reason', s.reason],
      s.ns > 0 && ['time', `${timeText(s.ns)} a run` + (s.executions > 1 ? ` in ${s.executions.toFixed(1)} executions` : '') +
          (s.control ? '' : `, ${shareText(s.share)}`)],
      ['estimate', timeText(s.estimate) + (s.bytes || s.flops ? `, bound by ${s.roof}` : '')],
      s.bytes > 0 && ['bytes', bytesText(s.bytes) + (s.once && !s.control ? `, ${(s.bytes / s.once).toFixed(1)} GB/s` : '')],
      s.flops > 0 && ['flops', countText(s.flops) + (s.once && !s.control ? `, ${(s.flops / s.once).toFixed(1)} GFLOP/s` : '')],
      ['reads', s.reads.length ? valueLinks(s.reads) : ''],
      ['writes', s.writes.length ? valueLinks(s.writes) : ''],
      s.range && ['range', `${s.range[0]} … ${s.range[1]}, grain ${s.grain}`],
      launch && ['launch', `grid ${launch.grid}, block ${launch.block}` + (launch.shared ? `, ${bytesText(launch.shared)} shared` : '')],
      launch && launch.occupancy && ['occupancy', `at most ${launch.occupancy} a multiprocessor` +
          (launch.waves ? `; ${launch.waves} waves` : '')],
      kernel && kernel.scratch_bytes > 0 && ['scratch', bytesText(kernel.scratch_bytes) + ' a thread'],
    ]),
    kernel ? [el('h3', {}, 'plan'), el('pre', {class: 'wrap'}, kernel.plan)] : null,
    code.llvm ? el('details', {}, el('summary', {}, 'LLVM IR'), el('pre', {}, code.llvm)) : null,
    code.assembly ? el('details', {}, el('summary', {}, 'assembly'), el('pre', {}, code.assembly)) : null,
  ];
}

function instructionDetails(app, graph, module, i) {
  const link = (k) => el('a', {class: 'mono', onclick: () => app.go(module.instructions[k])}, module.instructions[k].name);
  const after = module === graph.modules[0], steps = after && graph.stepsOf ? graph.stepsOf.get(i.name) || [] : [];
  const remarks = graph.remarksOf(i.name), computation = module.computations[i.computation];
  const list = (rows, limit = 40) => el('div', {class: 'chips'}, rows.slice(0, limit).map((k) => el('span', {class: 'chip'}, link(k))),
      rows.length > limit ? el('span', {class: 'dim'}, `and ${rows.length - limit} more`) : null);
  const caller = computation.callers[0];
  return [
    el('h2', {}, i.name),
    el('div', {class: 'dim'}, i.opcode, i.target ? ` ${i.target}` : '', caller !== undefined ? [' in ', link(caller)] :
        computation.index === module.entry ? '' : ` in ${computation.name}`,
      computation.root === i.index ? ' · root' : ''),
    i.group ? el('div', {}, el('a', {onclick: () => app.graphPane().closeGroup(i.group)}, 'close its group')) : null,
    el('pre', {class: 'wrap'}, i.text),
    facts([
      ['shape', el('span', {class: 'mono'}, i.shape)],
      ['source', i.source], ['scope', i.scope], ['op_name', i.op_name],
      i.cost && ['cost', [i.cost.flops && countText(i.cost.flops) + ' flops', i.cost.transcendentals && countText(i.cost.transcendentals) +
          ' transcendentals', i.cost.bytes && bytesText(i.cost.bytes)].filter(Boolean).join(', ') +
          (i.cost.executions > 1 ? ` × ${countText(i.cost.executions)}` : '')],
    ]),
    i.operands.length ? [el('h3', {}, `operands (${i.operands.length})`), list(i.operands)] : null,
    i.users.length ? [el('h3', {}, `users (${i.users.length})`), list(i.users)] : null,
    i.calls.map((c, k) => [el('h3', {}, roleOf(i, k) || 'instructions', ` (${module.computations[c].instructions.length})`),
        list(module.computations[c].instructions, 60)]),
    steps.map((s) => stepFacts(app, graph, s)),
    remarks.length ? [el('h3', {}, 'remarks'), remarks.map((r) =>
        el('p', {}, el('b', {}, `${r.pass}: ${r.kind}`), ' ', r.reason, r.numbers ?
        el('span', {class: 'dim'}, ' ' + Object.entries(r.numbers).map(([k, v]) => `${k} ${+v.toPrecision(4)}`).join(', ')) : null))] :
        null,
  ];
}

function valueDetails(app, graph, v) {
  const touching = graph.steps.filter((s) => s.reads.includes(v.number) || s.writes.includes(v.number));
  return [
    el('h2', {}, `v${v.number}`, v.name ? `: ${cut(v.name, 80)}` : ''),
    facts([['kind', v.kind], ['bytes', bytesText(v.bytes)], ['offset', v.offset === undefined ? '' : v.offset.toLocaleString()],
      ['alive', v.first < 0 ? 'never used' : `steps ${v.first} to ${v.last}`]]),
    el('h3', {}, 'steps'),
    touching.map((s) => el('div', {}, el('span', {class: 'dim'}, s.writes.includes(v.number) ?
        (s.reads.includes(v.number) ? 'in place ' : 'writes ') : 'reads '), s.position, ' ', nameLink(app, s.name))),
  ];
}

function graphDetails(app, graph) {
  const top = graph.steps.filter((s) => !s.control).sort((a, b) => b.share - a.share).slice(0, 8), module = graph.modules[0];
  return [
    el('h2', {}, graph.name),
    graph.error ? el('div', {class: 'error'}, graph.error) : null,
    graph.program && graph.program.tier !== 'native' ? el('div', {class: 'notice'}, `eager program: ${graph.program.reason}`) : null,
    facts([['flops', graph.flops() ? countText(graph.flops()) : ''],
        ['transcendentals', module && module.cost ? countText(module.cost.transcendentals) : ''],
        ['bytes', graph.bytes() === undefined ? '' : bytesText(graph.bytes())]]),
    top.length ? [el('h3', {}, graph.measured ? 'most of the run' : 'most of the estimate'),
      top.map((s) => el('div', {}, el('span', {class: 'bar', style: `width:${Math.max(1, 60 * s.share).toFixed(0)}px`}),
          ` ${shareText(s.share)} `, nameLink(app, s.name), s.op ? el('span', {class: 'dim'}, ` ${s.op}`) : null))] : null,
    module ? [el('h3', {}, 'how to'), el('p', {class: 'dim'},
        'Drag to move, wheel to zoom, click for details; + opens a fusion, a loop or a group. ' +
            '/ searches by name, opcode, shape, source.')] : null,
  ];
}
