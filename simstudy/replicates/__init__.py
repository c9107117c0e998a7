"""From batches to measures with their Monte Carlo error; the stopping rule; one replicate again."""
