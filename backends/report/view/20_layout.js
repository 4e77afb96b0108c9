'use strict';
// Layered drawing of a directed acyclic graph (Sugiyama, Tagawa, Toda 1981) in time close to linear: layers by longest path,
// order by barycenters, places by isotonic regression: in a layer the wished places are met as nearly (least squares) as the order
// and the distances allow (pool adjacent violators).

const LONG = 24;  // an edge over more layers gets no places of its own: it is drawn straight, behind the nodes

// nodes: [{w, h}]; edges: [[from, to]] with from before to. Sets x, y (left, top) of nodes; returns {w, h, routes: [[x, y]...]}.
function layered(nodes, edges, {gapX = 18, gapY = 30} = {}) {
  const n = nodes.length;
  if (n === 0) return {w: 0, h: 0, routes: []};
  const ranks = ranksOf(n, edges);
  // Real nodes and, on the layers in between, one dummy per long edge.
  const cells = nodes.map((node, k) => ({k, w: node.w, h: node.h, rank: ranks[k], up: [], down: [], dummy: false}));
  const paths = edges.map(([u, v]) => {
    const path = [cells[u]];
    if (ranks[v] - ranks[u] <= LONG) {
      for (let r = ranks[u] + 1; r < ranks[v]; ++r) {
        const dummy = {k: -1, w: 6, h: 0, rank: r, up: [], down: [], dummy: true};
        cells.push(dummy);
        path.push(dummy);
      }
    }
    path.push(cells[v]);
    if (path.length > 2 || ranks[v] - ranks[u] === 1) {
      for (let k = 0; k + 1 < path.length; ++k) path[k].down.push(path[k + 1]), path[k + 1].up.push(path[k]);
    }
    return path;
  });
  const layers = [];
  for (const cell of cells) (layers[cell.rank] = layers[cell.rank] || []).push(cell);
  for (let r = 0; r < layers.length; ++r) layers[r] = layers[r] || [];
  order(layers);
  place(layers, gapX);
  let y = 0, right = 0, left = Infinity;
  for (let r = 0; r < layers.length; ++r) {
    const height = Math.max(0, ...layers[r].map((c) => c.h));
    for (const c of layers[r]) {
      c.y = c.up.length === 0 ? y + height - c.h : y;  // a parameter stands close to its users
      c.bottom = y + height;
      c.top = y;
    }
    const crossing = layers[r].reduce((total, c) => total + c.down.length, 0);
    y += height + gapY + Math.min(50, crossing * 0.6);
  }
  for (const c of cells) left = Math.min(left, c.x - c.w / 2), right = Math.max(right, c.x + c.w / 2);
  for (const c of cells) c.x -= left;
  nodes.forEach((node, k) => { node.x = cells[k].x - cells[k].w / 2; node.y = cells[k].y; });
  return {w: right - left, h: Math.max(...cells.map((c) => c.y + c.h)), routes: route(paths, cells)};
}

function ranksOf(n, edges) {
  const up = Array.from({length: n}, () => []), down = Array.from({length: n}, () => []);
  for (const [u, v] of edges) down[u].push(v), up[v].push(u);
  const ranks = new Array(n).fill(0);
  for (let v = 0; v < n; ++v) for (const u of up[v]) ranks[v] = Math.max(ranks[v], ranks[u] + 1);
  // Down to just above the first user, where that makes no line longer in sum: what an operand tree of its own feeds (a parameter, a
  // transposed weight) stands where it is needed. The operands follow.
  const tree = new Array(n).fill(false);
  for (let v = 0; v < n; ++v) tree[v] = down[v].length <= 1 && up[v].every((u) => tree[u]);
  for (let v = n - 1; v >= 0; --v) {
    if (down[v].length === 0) continue;
    const held = up[v].filter((u) => !tree[u]).length;
    if (held <= down[v].length) ranks[v] = Math.max(ranks[v], Math.min(...down[v].map((w) => ranks[w])) - 1);
  }
  return ranks;
}

function order(layers) {
  const number = () => { for (const layer of layers) layer.forEach((c, k) => c.at = k); };
  number();
  const sweep = (layer, side) => {
    for (const c of layer) {
      const near = c[side];
      c.wish = near.length === 0 ? c.at : near.reduce((total, o) => total + o.at, 0) / near.length;
    }
    layer.sort((a, b) => a.wish - b.wish || a.at - b.at);
    layer.forEach((c, k) => c.at = k);
  };
  for (let round = 0; round < 6; ++round) {
    for (let r = 1; r < layers.length; ++r) sweep(layers[r], 'up');
    for (let r = layers.length - 2; r >= 0; --r) sweep(layers[r], 'down');
  }
}

function place(layers, gap) {
  for (const layer of layers) {
    let x = 0;
    for (const c of layer) c.x = x + c.w / 2, x += c.w + gap;
    for (const c of layer) c.x -= x / 2;
  }
  const mean = (cells) => cells.reduce((total, c) => total + c.x, 0) / cells.length;
  const settle = (layer, wish) => {
    const wishes = layer.map((c) => wish(c));
    const weights = layer.map((c, k) => wishes[k] === null ? 0.05 : c.dummy ? 4 : 1 + 0.2 * (c.up.length + c.down.length));
    const shift = [];  // where each would stand if the first stood at 0 and all touched
    layer.forEach((c, k) => shift[k] = k === 0 ? 0 : shift[k - 1] + (layer[k - 1].w + c.w) / 2 +
        gap * (c.dummy && layer[k - 1].dummy ? 0.5 : 1));
    const blocks = [];
    layer.forEach((c, k) => {
      blocks.push({value: (wishes[k] === null ? c.x : wishes[k]) - shift[k], weight: weights[k], count: 1});
      while (blocks.length > 1 && blocks[blocks.length - 2].value > blocks[blocks.length - 1].value) {
        const b = blocks.pop(), a = blocks.pop(), weight = a.weight + b.weight;
        blocks.push({value: (a.value * a.weight + b.value * b.weight) / weight, weight, count: a.count + b.count});
      }
    });
    let k = 0;
    for (const b of blocks) for (let i = 0; i < b.count; ++i, ++k) layer[k].x = b.value + shift[k];
  };
  for (let round = 0; round < 4; ++round) {
    for (const layer of layers) settle(layer, (c) => c.up.length ? mean(c.up) : null);
    for (const layer of layers.slice().reverse()) settle(layer, (c) => c.down.length ? mean(c.down) : c.up.length ? mean(c.up) : null);
  }
  for (const layer of layers) settle(layer, (c) => c.up.length + c.down.length ? mean(c.up.concat(c.down)) : null);
}

// Points of each edge: out of the middle of its source, through its dummies, into its own place on top of its target.
function route(paths, cells) {
  const into = new Map();
  paths.forEach((path, e) => {
    const target = path[path.length - 1];
    if (!into.has(target)) into.set(target, []);
    into.get(target).push(e);
  });
  const port = new Array(paths.length);
  for (const [target, list] of into) {
    list.sort((a, b) => paths[a][paths[a].length - 2].x - paths[b][paths[b].length - 2].x);
    list.forEach((e, k) => port[e] = target.x + ((k + 1) / (list.length + 1) - 0.5) * target.w * 0.7);
  }
  return paths.map((path, e) => {
    const points = [[path[0].x, path[0].y + path[0].h]];
    if (path[0].bottom > points[0][1] + 1) points.push([path[0].x, path[0].bottom]);
    for (let k = 1; k + 1 < path.length; ++k) points.push([path[k].x, path[k].top], [path[k].x, path[k].bottom]);
    const target = path[path.length - 1];
    points.push([port[e], target.y]);
    points.far = path.length === 2 && target.rank - path[0].rank > LONG;
    return points;
  });
}

// A smooth line through points that leave and enter vertically.
function curve(points) {
  let d = `M${points[0][0].toFixed(1)} ${points[0][1].toFixed(1)}`;
  for (let k = 1; k < points.length; ++k) {
    const [x0, y0] = points[k - 1], [x1, y1] = points[k];
    if (Math.abs(x0 - x1) < 0.5) { d += `V${y1.toFixed(1)}`; continue; }
    const bend = Math.max(8, Math.min(60, (y1 - y0) / 2));
    d += `C${x0.toFixed(1)} ${(y0 + bend).toFixed(1)} ${x1.toFixed(1)} ${(y1 - bend).toFixed(1)} ${x1.toFixed(1)} ${y1.toFixed(1)}`;
  }
  return d;
}
