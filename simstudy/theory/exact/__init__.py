"""Exact moments of heads at any n, by quadrature and by quasi-Monte Carlo."""
