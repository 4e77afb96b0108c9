"""Weighted minimax polynomials by the Remez exchange (E. Remez 1934; see J.-M. Muller, Elementary Functions, 3rd ed., ch. 3).

minimax(f, n, lo, hi, w) finds c[0..n-1] minimising max |w(x) * (f(x) - sum c[k] x^k)| on [lo, hi].
With bits=24 the coefficients are rounded to f32: all at once, or one after the other, lowest order first, fitting the rest
again so that rounding a coefficient is paid for by the ones above it; the better of the two is kept.
"""
import mpmath as mp

mp.mp.dps = 50
GRID = 600


def _fit(fs, ws, xs, n):
    """Multi-point exchange on the grid xs for sum_{k<n} c_k x^k."""
    idx = [int(round((len(xs) - 1) * (1 - mp.cos(mp.pi * i / n)) / 2)) for i in range(n + 1)]
    for _ in range(40):
        a = mp.matrix(n + 1, n + 1)
        b = mp.matrix(n + 1, 1)
        for i, j in enumerate(idx):
            p = mp.mpf(1)
            for k in range(n):
                a[i, k] = p
                p *= xs[j]
            a[i, n] = (-1) ** i / ws[j]
            b[i] = fs[j]
        sol = mp.lu_solve(a, b)
        c = [sol[k] for k in range(n)]
        err = [w * (f - mp.polyval(c[::-1], x)) for f, w, x in zip(fs, ws, xs)]
        # One extremum per run of equal sign, then drop the smallest ends until n + 1 remain.
        ext = []
        for j, e in enumerate(err):
            if ext and (err[ext[-1]] >= 0) == (e >= 0):
                if abs(e) > abs(err[ext[-1]]):
                    ext[-1] = j
            else:
                ext.append(j)
        while len(ext) > n + 1:
            ext.pop(0 if abs(err[ext[0]]) < abs(err[ext[-1]]) else -1)
        worst = max(abs(e) for e in err)
        if len(ext) < n + 1 or ext == idx:
            break
        idx = ext
        if worst <= abs(sol[n]) * mp.mpf("1.0001"):
            break
    return c, worst


def to_f32(v):
    """Nearest binary32, ties to even, as mpf; normal range only."""
    if v == 0:
        return mp.mpf(0)
    m, e = mp.frexp(v)
    return mp.ldexp(mp.nint(mp.ldexp(m, 24)), e - 24)


def minimax(f, n, lo, hi, w=lambda x: mp.mpf(1), bits=53):
    lo, hi = mp.mpf(lo), mp.mpf(hi)
    xs = [(lo + hi) / 2 - (hi - lo) / 2 * mp.cos(mp.pi * (2 * i + 1) / (2 * GRID)) for i in range(GRID)]
    fs = [f(x) for x in xs]
    ws = [w(x) for x in xs]
    c, worst = _fit(fs, ws, xs, n)
    if bits == 53:
        return [mp.mpf(float(v)) for v in c], worst
    measure = lambda p: max(ww * abs(v - mp.polyval(p[::-1], x)) for v, ww, x in zip(fs, ws, xs))
    plain = [to_f32(v) for v in c]
    done = []
    rest, wr = fs, ws
    for k in range(n):
        done.append(to_f32(c[0]))
        rest = [(r - done[-1]) / x for r, x in zip(rest, xs)]
        wr = [ww * abs(x) for ww, x in zip(wr, xs)]
        if k + 1 < n:
            c, _ = _fit(rest, wr, xs, n - k - 1)
    best = min((plain, done), key=measure)
    return best, measure(best)
