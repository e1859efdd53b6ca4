"""How a query reads cached keys."""
