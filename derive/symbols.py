"""The letters of THEORY.md as SymPy symbols, in one place."""

import sympy as sp

# Overlaps and susceptibility (section 2); R is the excess risk Q0 - 2 m + q.
q, m, R = sp.symbols("q m R", real=True)
V = sp.Symbol("V", positive=True)
# Their conjugates.
A, M, C = sp.symbols("A M C", positive=True)
# Sample ratio, penalty, noise, second and first moment of the target.
alpha, lam = sp.symbols("alpha lam", positive=True)
Delta, Q0, mean = sp.symbols("Delta Q0 mean", nonnegative=True)
# Reduced variables of section 3: width of the semicircle, shrinkage, eigenvalue of B.
tau2, theta, x = sp.symbols("tau2 theta x", real=True)

_NAMED = {
    "excess_risk": "R",
    "train_loss": r"e_{\mathrm{train}}",
    "test_loss": r"e_{\mathrm{test}}",
    "energy": "e",
    "trace": r"\mathrm{Tr}\,S/d",
    "rank_fraction": r"\mathrm{rank}\,S/d",
    "E[Moreau]": r"\mathbb{E}[\mathcal{M}_V]",
    "Moreau_V": r"\mathcal{M}_V",
    "min_s": r"\min_s",
    "P(A, M, C)": "P(A, M, C)",
    "alpha*E[Moreau] + P - A*q/2 + M*m + C*V": r"\alpha\,\mathbb{E}[\mathcal{M}_V] + P - Aq/2 + Mm + CV",
}
LATEX_NAMES = {
    lam: r"\lambda",
    Q0: "Q_0",
    tau2: r"\tau^2",
    theta: r"\theta",
    **{sp.Symbol(name): text for name, text in _NAMED.items()},
}
