'use strict';
// The graph pane: a module's entry as a layered drawing; fusions, loops and branches as boxes that open, long computations as
// groups of neighbours in the schedule. One svg, redrawn whenever something opens or closes.

const GROUP_ABOVE = 240;  // instructions of one computation
const OPEN_ALL_BELOW = 70;
const HEADER = 24, PAD = 12, CHAR = 6.7;

const ROLES = {while: ['condition', 'body'], fusion: [''], call: ['']};
function roleOf(instruction, k) {
  const roles = ROLES[instruction.opcode];
  return roles ? roles[k] || '' : instruction.opcode === 'conditional' ? `branch ${k}` : '';
}
// What a box is about: the first of these that something in it belongs to.
function familyOf(module, i) {
  if (i.opcode === 'custom-call') return /conv|mm|matmul|attention|linear/.test(i.target || '') ? 'contraction' : 'framework';
  if (i.opcode !== 'fusion') return i.family;
  const inside = new Set(module.computations[i.calls[0]].instructions.map((k) => module.instructions[k]).filter((o) =>
      o.operands.length).map((o) => o.family));
  return ['contraction', 'reduction', 'indexing', 'linalg', 'random', 'elementwise', 'movement'].find((f) => inside.has(f)) || i.family;
}
const isPill = (i) => ['parameter', 'constant', 'get-tuple-element', 'tuple', 'iota'].includes(i.opcode);
const shortShape = (text) => text.replace(/\{[\d,]*\}/g, '');

// What a computation does, in a few words: its opcodes but for those that say little.
function summaryOf(module, c) {
  const seen = new Map();
  for (const k of module.computations[c].instructions) {
    const i = module.instructions[k];
    if (!['parameter', 'constant', 'tuple', 'get-tuple-element', 'broadcast', 'bitcast', 'reshape'].includes(i.opcode)) {
      seen.set(i.opcode, (seen.get(i.opcode) || 0) + 1);
    }
  }
  return [...seen].map(([op, n]) => n > 1 ? `${op}×${n}` : op).join(' ');
}

// Neighbours in the schedule, of one scope where there are scopes: contiguous, so the groups have no cycles.
function groupsOf(module, c) {
  const computation = module.computations[c];
  if (computation.groups) return computation.groups;
  const members = computation.instructions.map((k) => module.instructions[k]);
  const runs = (depth) => {
    const out = [];
    for (const i of members) {
      const scope = (i.scope || '').split('.').slice(0, depth).join('.');
      const last = out[out.length - 1];
      if (last && (last.scope === scope || !scope)) last.members.push(i);
      else out.push({scope, members: [i]});
    }
    return out;
  };
  let best = null;
  for (let depth = 1; depth <= 8; ++depth) {
    const found = runs(depth);
    if (found.length <= 90 && found.length >= 4) best = found;
  }
  const chunk = Math.max(30, Math.ceil(members.length / 50)), groups = [];
  for (const run of best || [{scope: '', members}]) {
    const parts = Math.ceil(run.members.length / (best ? 150 : chunk));
    const size = Math.ceil(run.members.length / parts);
    for (let p = 0; p < parts; ++p) groups.push({scope: run.scope, members: run.members.slice(p * size, (p + 1) * size)});
  }
  groups.forEach((g, k) => {
    g.key = `g${c}.${k}`;
    for (const i of g.members) i.group = g;
  });
  return computation.groups = groups;
}

class GraphPane {
  constructor(graph, module, app) {
    Object.assign(this, {graph, module, app, open: new Set(), view: {x: 0, y: 0, k: 1}, hits: new Set()});
    const all = module.instructions.length;
    for (const i of module.instructions) {
      if (i.calls.length && (all <= OPEN_ALL_BELOW || i.opcode !== 'fusion' && all <= 400)) this.open.add(`i${i.index}`);
    }
    this.canvas = svg('svg', {id: 'canvas'});
    this.stage = svg('g');
    this.canvas.append(svg('defs', {}, svg('marker', {id: 'arrow', viewBox: '0 0 8 8', refX: 7, refY: 4, markerWidth: 6.5,
        markerHeight: 6.5, markerUnits: 'userSpaceOnUse', orient: 'auto'},
      svg('path', {class: 'arrow', d: 'M0 0L8 4L0 8z'}))), this.stage);
    this.minimap = el('canvas', {id: 'minimap'});
    this.listen();
  }

  // ---- what stands where
  layout() {
    this.entry = this.layoutComputation(this.module.entry, 0);
    this.places = new Map();  // instruction or group key -> [x, y, w, h] on the stage
    const walk = (part, x, y) => {
      for (const node of part.nodes) {
        this.places.set(node.key, [x + node.x, y + node.y, node.w, node.h]);
        for (const child of node.children || []) walk(child.part, x + node.x + child.x, y + node.y + child.y);
      }
    };
    walk(this.entry, 0, 0);
  }

  layoutComputation(c, depth) {
    const instructions = this.module.computations[c].instructions.map((k) => this.module.instructions[k]);
    const nodes = [], nodeOf = new Map();
    if (instructions.length > GROUP_ABOVE) {
      for (const g of groupsOf(this.module, c)) {
        if (this.open.has(g.key)) {
          for (const i of g.members) nodeOf.set(i.index, nodes.length), nodes.push(this.instructionNode(i, depth));
        } else {
          for (const i of g.members) nodeOf.set(i.index, nodes.length);
          nodes.push(this.groupNode(g));
        }
      }
    } else {
      for (const i of instructions) nodeOf.set(i.index, nodes.length), nodes.push(this.instructionNode(i, depth));
    }
    const edges = [], seen = new Set();
    for (const i of instructions) {
      for (const o of i.operands) {
        const u = nodeOf.get(o), v = nodeOf.get(i.index), key = u * nodes.length + v;
        if (u === v || seen.has(key)) continue;
        seen.add(key);
        edges.push([u, v]);
      }
    }
    const ordered = edges.every(([u, v]) => u < v) ? null : topological(nodes.length, edges);
    const at = ordered ? ordered.at : null;
    const placed = ordered ? ordered.order.map((k) => nodes[k]) : nodes;
    const drawn = layered(placed, at ? edges.map(([u, v]) => [at[u], at[v]]) : edges);
    return {nodes, w: drawn.w, h: drawn.h, edges: edges.map(([u, v], k) =>
        ({from: nodes[u].key, to: nodes[v].key, points: drawn.routes[k]}))};
  }

  instructionNode(i, depth) {
    const key = `i${i.index}`, node = {key, instruction: i, lines: this.linesOf(i)};
    const share = this.module === this.graph.modules[0] ? this.graph.shareOf(i.name) : 0;
    node.share = share;
    if (i.calls.length && this.open.has(key) && depth < 20) {
      let x = PAD, h = 0;
      node.children = i.calls.map((c, k) => {
        const part = this.layoutComputation(c, depth + 1), role = roleOf(i, k);
        const child = {part, role, x, y: HEADER + PAD + (role ? 14 : 0), computation: c};
        const w = Math.max(part.w, role.length * CHAR);
        x += w + PAD + (k + 1 < i.calls.length ? PAD : 0);
        h = Math.max(h, child.y + part.h);
        return child;
      });
      node.lines = [`${node.lines[0]}  ${cut(shortShape(i.shape), 26)}`];
      node.w = Math.max(x, node.lines[0].length * CHAR + 38 + (share >= 0.001 ? 44 : 0));
      node.h = h + PAD;
      return node;
    }
    const longest = Math.max(node.lines[0].length * CHAR + (share >= 0.001 ? 42 : 0), ...node.lines.slice(1).map((l) => l.length * 6.1));
    node.w = Math.max(isPill(i) ? 46 : 70, longest + 20 + (i.calls.length ? 18 : 0));
    node.h = 10 + 13 * node.lines.length;
    return node;
  }

  linesOf(i) {
    const shape = cut(shortShape(i.shape), 34);
    if (i.opcode === 'constant') {
      const value = /constant\((.*?)\)(?:,|$)/.exec(i.text);
      return value && value[1].length <= 18 ? [value[1], shape] : [cut(i.name, 26), shape];
    }
    if (isPill(i)) return [cut(i.name, 28), shape];
    if (i.opcode === 'fusion') return [cut(i.name, 32), cut(summaryOf(this.module, i.calls[0]), 36), shape];
    if (i.opcode === 'custom-call') return [cut(i.target || i.name, 32), shape];
    return i.name.startsWith(i.opcode) ? [cut(i.name, 30), shape] : [cut(i.opcode, 30), cut(i.name, 30), shape];
  }

  groupNode(g) {
    const named = g.members.filter((i) => !isPill(i)), [first, last] = named.length ? [named[0], named[named.length - 1]] :
        [g.members[0], g.members[g.members.length - 1]];
    const heading = g.scope ? cut(g.scope, 40) : `${cut(first.name, 18)} … ${cut(last.name, 18)}`;
    const kinds = groupBy(g.members.filter((i) => !isPill(i)), (i) => i.opcode);
    const text = [...kinds].sort((a, b) => b[1].length - a[1].length).slice(0, 4).map(([op, l]) => `${op}×${l.length}`).join(' ');
    const lines = [heading, cut(text, 44), `${g.members.length} instructions`];
    const share = this.module === this.graph.modules[0] ? sum(g.members, (i) => this.graph.shareOf(i.name)) : 0;
    return {key: g.key, group: g, lines, share, w: Math.max(lines[0].length * CHAR + 86, lines[1].length * 6.1 + 30), h: 52};
  }

  // ---- drawing
  draw() {
    this.layout();
    this.edgesOf = new Map();
    this.elements = new Map();
    this.stage.replaceChildren(...this.drawPart(this.entry));
    this.mark();
    this.applyView();
    this.drawMinimap();
  }

  drawPart(part) {
    const edges = part.edges.map((e) => {
      const path = svg('path', {class: 'edge' + (e.points.far ? ' far' : ''), d: curve(e.points), 'marker-end': 'url(#arrow)'});
      for (const key of [e.from, e.to]) {
        if (!this.edgesOf.has(key)) this.edgesOf.set(key, []);
        this.edgesOf.get(key).push(path);
      }
      return path;
    });
    return [svg('g', {class: 'edges'}, edges), ...part.nodes.map((n) => this.drawNode(n))];
  }

  drawNode(n) {
    const i = n.instruction, color = i ? (i.operands.length || i.calls.length ? `var(--${familyOf(this.module, i)})` : 'var(--data)') :
        'var(--dim)';
    const isRoot = i && this.module.computations[i.computation].root === i.index;
    const classes = ['node', n.children && 'box', n.group && 'group', i && isPill(i) && 'pill', isRoot && 'root'];
    const g = svg('g', {class: classes.filter(Boolean).join(' '), transform: `translate(${n.x.toFixed(1)} ${n.y.toFixed(1)})`,
        'data-key': n.key, 'data-name': i ? i.name : undefined});
    g.append(svg('rect', {class: 'card', width: n.w, height: n.h, rx: i && isPill(i) ? 9 : 5, style: n.children ? `stroke:${color}` :
        undefined}));
    if (!(i && isPill(i))) g.append(svg('rect', {width: 4, height: n.children ? HEADER : n.h, rx: 2, fill: color}));
    const opens = n.group || i.calls.length > 0, left = 11 + (opens ? 16 : 0);
    if (opens) {
      g.append(svg('rect', {class: 'toggle', 'data-toggle': n.key, x: 9, y: 6, width: 13, height: 13, rx: 3}),
               svg('text', {class: 'toggle-sign', x: 15.5, y: 16.5}, n.children ? '−' : '+'));
    }
    n.lines.forEach((line, k) => g.append(svg('text', {class: k > 0 ? 'second' : '', x: k > 0 ? 11 : left, y: 16 + 13 * k}, line)));
    if (n.share >= 0.001) {
      g.append(svg('text', {class: 'share', x: n.w - 6, y: 16, 'text-anchor': 'end'}, shareText(n.share)),
               svg('rect', {class: 'heat', x: 0, y: n.h - 3, width: Math.max(2, n.w * Math.min(1, n.share)), height: 3, rx: 1}));
    }
    for (const child of n.children || []) {
      if (child.role) g.append(svg('text', {class: 'second', x: child.x, y: HEADER + 12}, child.role));
      g.append(svg('g', {transform: `translate(${child.x} ${child.y})`}, this.drawPart(child.part)));
    }
    this.elements.set(n.key, g);
    return g;
  }

  drawMinimap() {
    const scale = Math.min(150 / this.entry.w, 190 / this.entry.h), canvas = this.minimap;
    canvas.width = Math.max(24, this.entry.w * scale);
    canvas.height = Math.max(24, this.entry.h * scale);
    const c = canvas.getContext('2d'), style = getComputedStyle(document.documentElement);
    const {x, y, k} = this.view, box = this.canvas.getBoundingClientRect();
    canvas.style.display = this.entry.w * k > box.width || this.entry.h * k > box.height ? 'block' : 'none';
    for (const n of this.entry.nodes) {
      c.fillStyle = style.getPropertyValue(n.instruction && n.instruction.operands.length ? `--${familyOf(this.module, n.instruction)}` :
          n.group ? '--dim' : '--data');
      c.fillRect(n.x * scale, n.y * scale, Math.max(1, n.w * scale), Math.max(1, n.h * scale));
    }
    c.strokeStyle = style.getPropertyValue('--hot');
    c.lineWidth = 1.5;
    c.globalAlpha = 0.12;
    c.fillStyle = c.strokeStyle;
    c.fillRect(-x / k * scale, -y / k * scale, box.width / k * scale, box.height / k * scale);
    c.globalAlpha = 1;
    c.strokeRect(-x / k * scale, -y / k * scale, box.width / k * scale, box.height / k * scale);
    this.minimapScale = scale;
  }

  // ---- the window on it
  applyView() {
    const {x, y, k} = this.view;
    this.stage.setAttribute('transform', `translate(${x} ${y}) scale(${k})`);
    this.canvas.setAttribute('class', k < 0.22 ? 'far farther' : k < 0.5 ? 'far' : '');
  }
  moved() { this.applyView(); this.drawMinimap(); }

  // All of it if it can be read then, else as wide as fits, from the top.
  fit() {
    const box = this.canvas.getBoundingClientRect(), w = this.entry.w, h = this.entry.h, margin = 40;
    const bottom = 40;  // the legend
    let k = Math.min(1.25, (box.width - 2 * margin) / w, (box.height - 2 * margin - bottom) / h);
    if (k < 0.55) k = Math.min(1, Math.max(0.55, (box.width - 2 * margin) / w));
    const shown = h * k + 2 * margin + bottom <= box.height;
    // Wider than the window: where most of what is seen first stands.
    const centers = this.entry.nodes.filter((n) => n.y < box.height / k).map((n) => n.x + n.w / 2).sort((a, b) => a - b);
    const middle = w * k > box.width - 2 * margin ? centers[centers.length >> 1] : w / 2;
    this.view = {k, x: box.width / 2 - middle * k, y: shown ? (box.height - bottom - h * k) / 2 : margin + 10};
    this.moved();
  }
  whole() {
    const box = this.canvas.getBoundingClientRect();
    const k = Math.min(1.25, (box.width - 60) / this.entry.w, (box.height - 60) / this.entry.h);
    this.view = {k, x: (box.width - this.entry.w * k) / 2, y: (box.height - this.entry.h * k) / 2};
    this.moved();
  }
  zoom(factor, cx, cy) {
    const k = Math.max(0.02, Math.min(4, this.view.k * factor)), f = k / this.view.k;
    this.view = {k, x: cx - (cx - this.view.x) * f, y: cy - (cy - this.view.y) * f};
    this.moved();
  }
  center(key) {
    const place = this.places.get(key), box = this.canvas.getBoundingClientRect();
    if (!place) return;
    const k = Math.max(this.view.k, 0.8);
    this.view = {k, x: box.width / 2 - (place[0] + place[2] / 2) * k, y: box.height / 2 - (place[1] + Math.min(place[3], 60) / 2) * k};
    this.moved();
  }

  listen() {
    let from = null, moved = false;
    this.canvas.addEventListener('wheel', (e) => {
      e.preventDefault();
      const box = this.canvas.getBoundingClientRect();
      if (e.shiftKey) { this.view.x -= e.deltaY; this.moved(); return; }
      this.zoom(Math.exp(-e.deltaY * (e.deltaMode === 1 ? 0.05 : 0.0015)), e.clientX - box.left, e.clientY - box.top);
    }, {passive: false});
    this.canvas.addEventListener('pointerdown', (e) => { from = [e.clientX, e.clientY]; moved = false; });
    window.addEventListener('pointermove', (e) => {
      if (!from) return;
      if (!moved && Math.hypot(e.clientX - from[0], e.clientY - from[1]) < 4) return;
      moved = true;
      this.canvas.classList.add('drag');
      this.view.x += e.clientX - from[0];
      this.view.y += e.clientY - from[1];
      from = [e.clientX, e.clientY];
      this.moved();
    });
    window.addEventListener('pointerup', () => { from = null; this.canvas.classList.remove('drag'); });
    this.canvas.addEventListener('click', (e) => {
      if (moved) return;
      const toggle = e.target.closest('[data-toggle]'), node = e.target.closest('[data-key]');
      if (toggle) this.toggle(toggle.dataset.toggle);
      else if (node) this.clicked(node.dataset.key);
      else this.app.select(null);
    });
    this.canvas.addEventListener('dblclick', (e) => {
      const node = e.target.closest('[data-key]');
      if (node) this.toggle(node.dataset.key);
    });
    this.minimap.addEventListener('click', (e) => {
      const box = this.minimap.getBoundingClientRect(), screen = this.canvas.getBoundingClientRect();
      this.view.x = screen.width / 2 - (e.clientX - box.left) / this.minimapScale * this.view.k;
      this.view.y = screen.height / 2 - (e.clientY - box.top) / this.minimapScale * this.view.k;
      this.moved();
    });
  }

  clicked(key) {
    if (key.startsWith('g')) this.toggle(key);
    else this.app.select(this.module.instructions[Number(key.slice(1))]);
  }

  // Opens or closes a box; what was clicked stays where it was on the screen.
  toggle(key) {
    const i = key.startsWith('i') ? this.module.instructions[Number(key.slice(1))] : null;
    if (i && i.calls.length === 0) return;
    const before = this.places.get(key);
    if (this.open.has(key)) this.open.delete(key);
    else this.open.add(key);
    const {x, y, k} = this.view;
    this.draw();
    const group = !i && this.module.computations.flatMap((c) => c.groups || []).find((g) => g.key === key);
    const after = this.places.get(key) || (group && this.places.get(`i${group.members[0].index}`));
    if (before && after) this.view = {k, x: x + (before[0] - after[0]) * k, y: y + (before[1] - after[1]) * k};
    this.moved();
  }

  openAll(on) {
    this.open.clear();
    if (on) {
      for (const i of this.module.instructions) if (i.calls.length) this.open.add(`i${i.index}`);
      for (const c of this.module.computations) {
        if (c.instructions.length > GROUP_ABOVE) for (const g of groupsOf(this.module, c.index)) this.open.add(g.key);
      }
    }
    this.draw();
    this.fit();
  }

  closeGroup(group) {
    this.open.delete(group.key);
    this.draw();
    this.center(group.key);
  }

  // Opens whatever hides an instruction and goes there.
  reveal(i) {
    let changed = false;
    for (let at = i, guard = 0; at && guard < 50; ++guard) {
      const c = this.module.computations[at.computation];
      if (c.instructions.length > GROUP_ABOVE) {
        groupsOf(this.module, c.index);
        if (!this.open.has(at.group.key)) this.open.add(at.group.key), changed = true;
      }
      const caller = c.callers.length ? this.module.instructions[c.callers[0]] : null;
      if (caller && !this.open.has(`i${caller.index}`)) this.open.add(`i${caller.index}`), changed = true;
      at = caller;
    }
    if (changed) this.draw();
    this.center(`i${i.index}`);
  }

  // Selection, its neighbours and search results, as classes.
  mark() {
    for (const e of this.stage.querySelectorAll('.selected, .beside, .hit, .edge.near')) e.classList.remove('selected', 'beside', 'hit',
        'near');
    for (const index of this.hits) {
      const e = this.elements.get(`i${index}`) || this.elements.get((this.module.instructions[index].group || {}).key);
      if (e) e.classList.add('hit');
    }
    const i = this.app.selected;
    if (!i || this.module.instructions[i.index] !== i) return;
    const e = this.elements.get(`i${i.index}`);
    if (e) e.classList.add('selected');
    for (const path of this.edgesOf.get(`i${i.index}`) || []) path.classList.add('near');
    for (const k of i.operands.concat(i.users)) {
      const beside = this.elements.get(`i${k}`);
      if (beside) beside.classList.add('beside');
    }
  }

  legend() {
    const families = [...new Set(this.module.instructions.filter((i) => i.operands.length && i.opcode !== 'fusion' && !isPill(i)).map((i) =>
        familyOf(this.module, i)))];
    return el('div', {id: 'legend'}, families.map((f) => el('span', {}, el('i', {style: `background: var(--${f})`}), f)),
      this.graph.total || this.graph.totalEstimate ? el('span', {}, el('i', {style: 'background: var(--hot)'}),
        this.graph.measured ? 'share of the run time' : 'share of the estimated time') : null);
  }

  show(main) {
    const modules = this.graph.modules;
    const pick = modules.length > 1 ? el('select', {title: 'which module', onchange: (e) => this.app.showModule(Number(e.target.value))},
      modules.map((m, k) => el('option', {value: k, selected: m === this.module}, m.label))) : null;
    main.replaceChildren(this.canvas, el('div', {id: 'tools'}, pick,
      el('button', {onclick: () => this.fit(), title: 'a readable size'}, 'fit'),
      el('button', {onclick: () => this.whole(), title: 'all of it'}, 'whole'),
      el('button', {onclick: () => this.openAll(true)}, 'open all'),
      el('button', {onclick: () => this.openAll(false)}, 'close all')), this.legend(), this.minimap);
    const first = !this.entry;
    this.draw();
    if (first) this.fit();
  }
}

function topological(n, edges) {
  const down = Array.from({length: n}, () => []), degree = new Array(n).fill(0), order = [], at = [];
  for (const [u, v] of edges) down[u].push(v), ++degree[v];
  const ready = [];
  for (let k = n - 1; k >= 0; --k) if (degree[k] === 0) ready.push(k);
  while (ready.length) {
    const u = ready.pop();
    at[u] = order.length;
    order.push(u);
    for (const v of down[u].reverse()) if (--degree[v] === 0) ready.push(v);
  }
  return {order, at};
}
