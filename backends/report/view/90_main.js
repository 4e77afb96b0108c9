'use strict';
// The shell: which graph, which pane, what is selected, search. The address's fragment may say them:
// #graph=0&pane=buffers&select=name&open=all&theme=dark.

const PANES = [
  {id: 'graph', title: 'Graph', has: (g) => g.modules.length > 0, make: (g, app) =>
      new GraphPane(g, g.modules[app.module] || g.modules[0], app), fixed: true},
  {id: 'overview', title: 'Overview', has: () => true, make: (g, app) => new OverviewPane(g, app)},
  {id: 'costs', title: 'Costs', has: (g) => g.steps.length > 0, make: (g, app) => new CostsPane(g, app)},
  {id: 'buffers', title: 'Buffers', has: (g) => g.program && g.values.length > 0, make: (g, app) => new BuffersPane(g, app), count: (g) =>
      g.values.length},
  {id: 'steps', title: 'Steps', has: (g) => g.steps.length > 0, make: (g, app) => new StepsPane(g, app), count: (g) => g.steps.length},
  {id: 'timeline', title: 'Timeline', has: (g) => g.profile && g.profile.trace && g.profile.trace.length > 0, make: (g, app) =>
      new TimelinePane(g, app)},
  {id: 'remarks', title: 'Remarks', has: (g) => g.remarks.length > 0, make: (g, app) => new RemarksPane(g, app), count: (g) =>
      g.remarks.length},
  {id: 'source', title: 'Source', has: (g) => SourcePane.lines(g).length > 0, make: (g, app) => new SourcePane(g, app), count: (g) =>
      SourcePane.lines(g).length},
  {id: 'kernels', title: 'Kernels', has: (g) => g.program && g.program.kernels.length > 0, make: (g, app) => new KernelsPane(g, app),
      count: (g) => g.program.kernels.length},
];

class App {
  constructor() {
    Object.assign(this, {graph: graphs[0], module: 0, pane: null, selected: null, value: null, made: new Map()});
    this.main = el('main');
    this.side = el('aside');
    this.tabs = el('nav');
    this.facts = el('div', {class: 'facts'});
    this.search = el('input', {id: 'search', placeholder: 'search  ( / )', autocomplete: 'off'});
    this.found = el('div', {id: 'found'});
    const pick = graphs.length > 1 ? el('select', {id: 'graphs', onchange: (e) => this.showGraph(Number(e.target.value))},
      graphs.map((g, k) => el('option', {value: k}, `${g.name}${g.native ? '' : ' (eager program)'}`))) : null;
    this.pick = pick;
    document.body.append(el('header', {}, el('h1', {title: report.title}, report.title), pick, this.facts,
        el('div', {id: 'searchbox'}, this.search, this.found),
      el('button', {title: 'light or dark', onclick: () => this.theme(document.documentElement.dataset.theme === 'dark' ? 'light' :
          'dark')}, '◐')), this.tabs, this.main, this.side, tip);
    this.listen();
  }

  start() {
    const asked = new URLSearchParams(location.hash.slice(1));
    this.theme(asked.get('theme') || (matchMedia('(prefers-color-scheme: dark)').matches ? 'dark' : 'light'));
    this.module = Number(asked.get('module') || 0);
    this.showGraph(Number(asked.get('graph') || 0), asked.get('pane'));
    if (asked.get('open') === 'all' && this.pane.openAll) this.pane.openAll(true);
    const i = asked.get('select') && this.instructionNamed(asked.get('select'));
    if (i) this.go(i, asked.get('pane') || 'graph');
    document.body.dataset.ready = 'yes';
  }

  theme(name) {
    document.documentElement.dataset.theme = name;
    if (this.pane && this.pane.drawMinimap && this.pane.entry) this.pane.drawMinimap();
  }

  showGraph(number, pane) {
    this.graph = graphs[number] || graphs[0];
    if (this.pick) this.pick.value = String(this.graph.number);
    this.selected = this.value = null;
    const g = this.graph, p = g.program, calls = g.steps.filter((s) => s.kind === 'call').length;
    this.facts.replaceChildren(...[
      g.modules[0] && [el('b', {}, g.modules[0].instructions.length), ' instructions'],
      p && [el('b', {}, g.steps.filter((s) => s.kind === 'kernel').length), ' kernels'], p && calls > 0 &&
          [el('b', {}, calls), ' framework calls'],
      p && typeof p.memory.arena === 'number' && ['arena ', el('b', {}, bytesText(p.memory.arena))],
      g.profile && g.profile.calls > 0 && ['run ', el('b', {}, timeText(g.profile.run_ns / g.profile.calls))],
    ].filter(Boolean).flatMap((x, k) => k ? [' · ', ...x] : x));
    this.show(pane || (g.error ? 'overview' : g.modules.length ? 'graph' : 'steps'));
    this.details();
  }

  showModule(number) {
    this.module = number;
    this.selected = null;
    this.show('graph');
    this.details();
  }

  show(id) {
    const available = PANES.filter((p) => p.has(this.graph)), info = available.find((p) => p.id === id) || available[0];
    const key = `${this.graph.number}/${info.id}/${info.id === 'graph' ? this.module : ''}`;
    if (!this.made.has(key)) this.made.set(key, info.make(this.graph, this));
    this.pane = this.made.get(key);
    this.paneId = info.id;
    this.tabs.replaceChildren(...available.map((p) => el('button',
        {class: p.id === info.id ? 'on' : '', 'data-pane': p.id, onclick: () => this.show(p.id)},
      p.title, p.count ? el('span', {class: 'count'}, p.count(this.graph)) : null)));
    this.main.className = info.fixed ? 'fixed' : '';
    this.main.dataset.pane = info.id;
    this.main.scrollTop = 0;
    tip.style.display = 'none';
    this.pane.show(this.main);
  }

  graphPane() {
    if (this.paneId !== 'graph') this.show('graph');
    return this.pane;
  }

  instructionNamed(name) {
    const module = this.graph.modules[this.module] || this.graph.modules[0];
    return module ? module.byName.get(name) || module.byName.get(name.replace(/ into place$/, '')) : undefined;
  }

  select(i) {
    this.selected = i;
    this.value = null;
    if (this.pane.mark) this.pane.mark();
    this.details();
  }
  selectValue(v) {
    this.value = v.number;
    this.selected = null;
    if (this.paneId === 'buffers') {
      const scroll = this.main.scrollTop;
      this.pane.show(this.main);
      this.main.scrollTop = scroll;
    }
    this.details();
  }
  // To an instruction, in the graph.
  go(i, pane = 'graph') {
    if (this.paneId !== pane) this.show(pane);
    this.select(i);
    if (pane === 'graph') this.pane.reveal(i), this.pane.mark();
  }
  goStep(s) {
    const i = this.instructionNamed(s.name);
    if (i) this.select(i);
    else this.side.replaceChildren(...stepFacts(this, this.graph, s).flat(Infinity).filter(Boolean));
  }
  stepRow(tr, s) {
    tr.dataset.step = s.position;
    tr.addEventListener('click', (e) => { if (e.target.tagName !== 'A') this.goStep(s); });
  }

  details() {
    const module = this.graph.modules[this.module] || this.graph.modules[0];
    const parts = this.value !== null ? valueDetails(this, this.graph, this.graph.values[this.value])
      : this.selected ? instructionDetails(this, this.graph, module, this.selected) : graphDetails(this, this.graph);
    fill(this.side, {}, []).replaceChildren();
    fill(this.side, {}, parts);
    this.side.scrollTop = 0;
  }

  find(text) {
    const module = this.graph.modules[this.module] || this.graph.modules[0], needle = text.trim().toLowerCase();
    if (!needle || !module) return [];
    const rank = (i) => i.name.toLowerCase() === needle ? 0 : i.name.toLowerCase().startsWith(needle) ? 1 :
        i.name.toLowerCase().includes(needle) ? 2 : 3;
    return module.instructions.filter((i) =>
        [i.name, i.opcode, i.shape, i.target, i.source, i.scope, i.op_name].join(' ').toLowerCase().includes(needle))
      .sort((a, b) => rank(a) - rank(b) || a.index - b.index);
  }

  listen() {
    let results = [], at = -1;
    const draw = () => {
      this.found.className = this.search.value && document.activeElement === this.search ? 'open' : '';
      this.found.replaceChildren(el('div', {class: 'dim'}, `${results.length} found`), ...results.slice(0, 60).map((i, k) =>
        el('div', {class: k === at ? 'at' : '', onmousedown: (e) => { e.preventDefault(); at = k; this.go(i); draw(); }}, i.name,
            el('span', {class: 'dim'}, `  ${i.opcode} ${i.shape} ${i.scope || ''}`))));
      const pane = this.paneId === 'graph' ? this.pane : null;
      if (pane) { pane.hits = new Set(results.length <= 500 ? results.map((i) => i.index) : []); pane.mark(); }
    };
    this.search.addEventListener('input', () => { results = this.find(this.search.value); at = -1; draw(); });
    this.search.addEventListener('focus', draw);
    this.search.addEventListener('blur', () => this.found.className = '');
    this.search.addEventListener('keydown', (e) => {
      if (e.key === 'Enter' && results.length) { at = (at + (e.shiftKey ? results.length - 1 : 1)) % results.length; this.go(results[at]);
          draw(); }
      if (e.key === 'Escape') { this.search.value = ''; results = []; draw(); this.search.blur(); }
    });
    document.addEventListener('keydown', (e) => {
      if (e.key === '/' && document.activeElement !== this.search) { e.preventDefault(); this.search.focus(); }
    });
    window.addEventListener('resize', () => { if (this.pane && this.pane.drawMinimap) this.pane.moved(); });
  }
}

if (graphs.length) new App().start();
else document.body.append(el('main', {}, el('div', {class: 'pane'}, el('h2', {}, report.title), el('p', {}, 'No graph was compiled.'))));
