"""Verdict of ``make verify``: do 95 % intervals over a population of query points and heads hold its truth?

The truth is the mean of all studies, whose error is a twentieth of that of one.  The controls are the errors given the
points and heads that were drawn, which say nothing of others.
"""

from population_studies import MEASURES, averages, wrong_pairs

STUDIES = 500
LEAST, MOST = 0.93, 0.97


def test_intervals_over_the_population__cover_and_those_given_one_draw_do_not():
    over = averages(STUDIES, ("queries", "heads"))
    truth = over.estimates.mean(axis=0)
    fixed = averages(STUDIES // 4, (), n_batches=8)
    for name, share, control in zip(MEASURES, over.coverage(truth), fixed.coverage(truth), strict=True):
        print(f"{name}: {share:.1%} over the population, {control:.1%} given one draw")
        assert LEAST <= share <= MOST
        assert control < 0.7


def test_shares_of_wrong_pairs__cover_over_heads_and_do_not_given_those_drawn():
    over, given = wrong_pairs(STUDIES)
    truth = over.estimates.mean(axis=0)
    share, control = over.coverage(truth), given.coverage(truth)
    print(f"share of wrong pairs, {truth:.1%}: {share:.1%} over heads, {control:.1%} given those drawn")
    assert LEAST <= share <= MOST
    assert control < 0.8
