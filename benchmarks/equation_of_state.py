"""Dynamic enthalpy of sea water and its slope over temperature: a long chain of elementwise operators.

The 48-term expression of IOC, SCOR, IAPSO, "The international thermodynamic equation of seawater - 2010", appendix K (McDougall et
al., GSW toolbox 3.0): specific volume is a ratio of polynomials in pressure, its integral is in closed form. In float32 the differences
of nearly equal logarithms and roots cancel, so the result is far from float64's: an accuracy trap for whoever reassociates.
A value is a pair (value, derivative by conservative temperature).
"""

import torch

# Coefficients by power of temperature; of salinity S, of S^1.5 and so on in tables of their own.
DENSITY = (9.998420897506056e2, 2.839940833161907, -3.147759265588511e-2, 1.181805545074306e-3)
DENSITY_S = (-6.698001071123802, -2.986498947203215e-2, 2.327859407479162e-4)
DENSITY_S15 = (-3.988822378968490e-2, 5.095422573880500e-4, -1.426984671633621e-5, 1.645039373682922e-7)
DENSITY_P = (-2.233269627352527e-2, -3.436090079851880e-4, 3.726050720345733e-6)
DENSITY_PS = (-1.806789763745328e-4, 6.876837219536232e-7)
DENSITY_PP = (-3.087032500374211e-7, -1.988366587925593e-8, -1.061519070296458e-11)
DENSITY_PPS = (1.550932729220080e-10,)
VOLUME = (1.0, 2.775927747785646e-3, -2.349607444135925e-5, 1.119513357486743e-6, 6.743689325042773e-10)
VOLUME_S = (-7.521448093615448e-3, -2.764306979894411e-5, 1.262937315098546e-7, 9.527875081696435e-10, -1.811147201949891e-11)
VOLUME_S15 = (-3.303308871386421e-5, 3.801564588876298e-7, -7.672876869259043e-9, -4.634182341116144e-11, 2.681097235569143e-12)
VOLUME_SS = 5.419326551148740e-6
VOLUME_P = (-2.742185394906099e-5, -3.212746477974189e-7, 3.191413910561627e-9, -1.931012931541776e-12)
VOLUME_PS = (-1.105097577149576e-7, 6.211426728363857e-10)
VOLUME_PP = (-1.119011592875110e-10, -1.941660213148725e-11, -1.864826425365600e-14)
VOLUME_PPS = (0.0, 1.119522344879478e-14)
VOLUME_PPP = (-1.200507748551599e-15, 6.057902487546866e-17)


def polynomial(coefficients, t):
    """Horner's scheme for value and derivative."""
    value, slope = coefficients[-1], 0.0
    for place, coefficient in enumerate(coefficients[-2::-1]):
        slope = slope * t + value if place else value
        value = value * t + coefficient
    return value, slope


def plus(*pairs):
    value, slope = pairs[0]
    for v, s in pairs[1:]:
        value, slope = value + v, slope + s
    return value, slope


def scaled(a, factor):
    """By what doesn't depend on temperature."""
    return a[0] * factor, a[1] * factor


def minus(a, b):
    return a[0] - b[0], a[1] - b[1]


def times(a, b):
    return a[0] * b[0], a[1] * b[0] + a[0] * b[1]


def over(a, b):
    quotient = a[0] / b[0]
    return quotient, (a[1] - quotient * b[1]) / b[0]


def root(a):
    value = torch.sqrt(a[0])
    return value, a[1] / (2.0 * value)


def log(a):
    return torch.log(a[0]), a[1] / a[0]


def one_plus(a):
    return 1.0 + a[0], a[1]


def enthalpy(s, t, p):
    """(dynamic enthalpy, its derivative by t), J/kg; s: absolute salinity g/kg, t: conservative temperature deg C, p: sea pressure dbar."""
    roots = torch.sqrt(s)

    def in_salinity(pure, linear, rooted, square=0.0):
        inner = plus(polynomial(linear, t), scaled(polynomial(rooted, t), roots))
        inner = (inner[0] + square * s, inner[1]) if square else inner
        return plus(polynomial(pure, t), scaled(inner, s))

    def linear_in_salinity(pure, linear):
        return plus(polynomial(pure, t), scaled(polynomial(linear, t), s))

    a0 = in_salinity(VOLUME, VOLUME_S, VOLUME_S15, VOLUME_SS)
    a1 = linear_in_salinity(VOLUME_P, VOLUME_PS)
    a2 = linear_in_salinity(VOLUME_PP, VOLUME_PPS)
    a3 = polynomial(VOLUME_PPP, t)
    b0 = in_salinity(DENSITY, DENSITY_S, DENSITY_S15)
    b1 = scaled(linear_in_salinity(DENSITY_P, DENSITY_PS), 0.5)
    b2 = linear_in_salinity(DENSITY_PP, DENSITY_PPS)

    square = times(b1, b1)
    disc = root(minus(square, times(b0, b2)))
    n = plus(a0, over(minus(over(scaled(times(times(a3, b0), b1), 2.0), b2), times(a2, b0)), b2))
    inner = minus(over(scaled(times(a3, square), 4.0), b2), plus(times(a3, b0), scaled(times(a2, b1), 2.0)))
    m = plus(a1, over(inner, b2))
    below, above = minus(b1, disc), plus(b1, disc)
    width = minus(above, below)
    part = over(minus(times(n, b2), times(m, b1)), times(b2, width))

    plain = minus(a2, over(scaled(times(a3, b1), 2.0), b2))
    direct = scaled(over(plus(plain, scaled(a3, 0.5 * p)), b2), p)
    first = log(one_plus(scaled(over(plus(scaled(b1, 2.0), scaled(b2, p)), b0), p)))
    second = log(one_plus(over(scaled(times(b2, width), p), times(below, plus(above, scaled(b2, p))))))
    total = plus(direct, times(over(m, scaled(b2, 2.0)), first), times(part, second))
    return total[0] * 1e4, total[1] * 1e4


def inputs(count: int):
    """Brackish water in the upper 1000 m."""
    s, t, p = torch.rand(3, count, dtype=torch.float64).unbind(0)
    return tuple(x.float().contiguous() for x in (0.01 + 9.99 * s, -12 + 32 * t, 1000 * p))
