'use strict';
// The report as the panes want it: names resolved, times per run, who uses what.

const report = JSON.parse(document.getElementById('report').textContent);

class Graph {
  constructor(json, number) {
    this.json = json;
    this.number = number;
    this.name = json.name || `graph ${number}`;
    this.error = json.error;
    this.target = json.target || {bytes_per_ns: 12, flops_per_ns: 32, threads: 1, name: 'cpu'};
    this.modules = [];
    if (json.module) this.modules.push(new Module(json.module, 'after the passes'));
    if (json.input) this.modules.push(new Module(json.input, 'before the passes'));
    this.program = json.program;
    this.profile = json.profile;
    this.code = json.code || {};
    this.occupancy = json.occupancy || {};
    this.remarks = (this.program && this.program.remarks) || [];
    this.steps = [];
    if (this.program) this.readSteps();
    this.native = !this.program || this.program.tier === 'native';
  }

  launches() { return this.steps.filter((s) => s.grid).length; }

  // Of a step that is launched on a device: grid, block and shared memory; how full a multiprocessor gets, and how often all of them.
  launch(s) {
    if (!s.grid) return null;
    const o = this.occupancy[this.program.kernels[s.kernel].symbol], text = (dims) => dims.join(' × ').replace(/( × 1)+$/, '');
    const blocks = s.grid.every(Number.isFinite) ? s.grid.reduce((a, b) => a * b) : null;
    const launch = {grid: text(s.grid), block: text(s.block), shared: s.shared_bytes, occupancy: '', waves: ''};
    if (!o) return launch;
    launch.share = o.threads / o.most_threads;
    launch.occupancy = `${shareText(launch.share)}: ${o.blocks} block${o.blocks === 1 ? '' : 's'}, ` +
        `${o.threads} of ${o.most_threads} threads`;
    if (blocks !== null && o.blocks > 0) launch.waves = (blocks / (o.blocks * o.multiprocessors)).toPrecision(3);
    return launch;
  }

  readSteps() {
    const measured = new Map(), profile = this.profile, runs = profile ? profile.regions : [];
    if (profile) for (const s of profile.steps) measured.set(`${s.region}/${s.step}`, s);
    const depth = new Map([[0, 0]]);
    this.program.order.forEach(([region, number], position) => {
      const row = this.program.regions[region].steps[number];
      const step = Object.assign({}, row, {position, region, number, depth: depth.get(region) || 0, ns: 0, count: 0});
      for (const callee of row.regions || []) depth.set(callee, step.depth + 1);
      const m = measured.get(`${region}/${number}`);
      if (m && m.count > 0) {
        step.count = m.count;
        step.once = m.ns / m.count;
        // What only some runs timed (kernels: while profiling) still has as many executions a run as its region.
        step.executions = runs[0] > 0 ? runs[region] / runs[0] : 1;
        step.ns = step.once * step.executions;
      }
      step.control = Boolean(row.regions);
      const memory = row.bytes / this.target.bytes_per_ns, compute = row.flops / this.target.flops_per_ns;
      step.roof = memory >= compute ? 'memory' : 'compute';
      // Executions a run: counted, or what the cost analysis knows of loops.
      const instruction = this.modules.length ? this.modules[0].byName.get(row.name.replace(/ into place$/, '')) : null;
      if (step.executions === undefined) step.executions = instruction && instruction.cost && region > 0 ? instruction.cost.executions : 1;
      step.estimateOnce = step.control ? 0 : Math.max(memory, compute, row.estimated_ns || 0);
      step.estimate = step.estimateOnce * step.executions;
      this.steps.push(step);
    });
    this.stepsOf = groupBy(this.steps, (s) => s.name);
    this.counters = new Map(this.steps.slice().sort((a, b) => a.region - b.region || a.number - b.number).map((s, k) => [k, s]));
    this.measured = this.steps.some((s) => s.ns > 0);
    const leaves = this.steps.filter((s) => !s.control);
    this.total = sum(leaves, (s) => s.ns);
    this.totalEstimate = sum(leaves, (s) => s.estimate);
    for (const s of this.steps) {
      s.share = this.measured ? s.ns / (this.total || 1) : s.estimate / (this.totalEstimate || 1);
    }
    this.values = this.program.values.map((v, k) => Object.assign({number: k}, v));
  }

  // Of an instruction: its steps' part of a run.
  shareOf(name) { return sum(this.stepsOf ? this.stepsOf.get(name) || [] : [], (s) => s.control ? 0 : s.share); }
  // Of a run: the steps know more than the module (what a framework's operator computes), where there are steps.
  flops() {
    const module = this.modules[0];
    return this.steps.length ? sum(this.steps, (s) => s.flops * s.executions) : module && module.cost ? module.cost.flops : undefined;
  }
  bytes() {
    const module = this.modules[0];
    return this.steps.length ? sum(this.steps, (s) => s.bytes * s.executions) : module && module.cost ? module.cost.bytes : undefined;
  }
  remarksOf(name) { return this.remarks.filter((r) => r.instruction === name); }
}

class Module {
  constructor(json, label) {
    this.label = label;
    this.computations = json.computations;
    this.instructions = json.instructions;
    this.entry = json.entry;
    this.cost = json.cost;
    this.instructions.forEach((i, k) => { i.index = k; i.users = []; i.calls = i.calls || []; });
    this.computations.forEach((c, k) => {
      c.index = k;
      c.callers = [];
      for (const i of c.instructions) this.instructions[i].computation = k;
    });
    for (const i of this.instructions) {
      for (const o of new Set(i.operands)) this.instructions[o].users.push(i.index);
      for (const c of i.calls) this.computations[c].callers.push(i.index);
    }
    this.byName = new Map(this.instructions.map((i) => [i.name, i]));
  }
}

function groupBy(rows, key) {
  const groups = new Map();
  for (const row of rows) {
    const k = key(row);
    if (!groups.has(k)) groups.set(k, []);
    groups.get(k).push(row);
  }
  return groups;
}
function sum(rows, of) { return rows.reduce((total, row) => total + of(row), 0); }

const graphs = report.graphs.map((json, k) => new Graph(json, k));
