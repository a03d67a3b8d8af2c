"""Charts are well-formed SVG, hold what they are given, and survive what runs may hold."""

import math
from xml.etree import ElementTree

import pytest

from rubricem_agent.viewer.ablation import ChartLine, draw_svg, nice_ticks
from rubricem_env.domain.errors import UsageError

RISING = ChartLine("truth", [(1, 0.0), (2, 0.5), (3, 1.0)])


def polylines(figure):
    return [element.get("points") for element in ElementTree.fromstring(figure).iter() if element.tag.endswith("line")]


def test_the_lowest_and_highest_point_lie_on_the_edges_of_the_frame():
    (points,) = [found for found in polylines(draw_svg("A", [RISING])) if found]

    # Left edge 48, right edge 460 - 10; bottom 240 - 36, top 10.
    assert points.split() == ["48.0,204.0", "249.0,107.0", "450.0,10.0"]


def test_markup_in_names_is_text():
    figure = draw_svg("<script>x</script>", [RISING._replace(name='"><img src=x onerror=y>')])

    assert "<script" not in figure
    assert "<img" not in figure
    ElementTree.fromstring(figure)


def test_points_that_are_no_numbers_are_left_out():
    curve = ChartLine("truth", [*RISING.points, (4, math.nan), (5, math.inf)])

    assert polylines(draw_svg("A", [curve])) == polylines(draw_svg("A", [RISING]))


def test_a_single_point_is_a_dot_in_the_middle():
    figure = draw_svg("A", [ChartLine("truth", [(3, 0.5)])])

    assert 'cx="249.0"' in figure
    assert "polyline" not in figure


def test_a_band_goes_there_above_and_back_below():
    band = [(1, 0.0, 1.0), (2, 0.0, 1.0)]

    figure = draw_svg("A", [ChartLine("mean", [(1, 0.5), (2, 0.5)], band)])

    assert 'points="48.0,10.0 450.0,10.0 450.0,204.0 48.0,204.0"' in figure


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 24, [0, 5, 10, 15, 20]), (-0.2, 0.2, [-0.2, -0.1, 0, 0.1, 0.2])],
)
def test_ticks_are_round_numbers(low, high, ticks):
    assert nice_ticks(low, high) == pytest.approx(ticks)


def test_a_file_of_its_own_is_one_svg_with_title_and_legend():
    tree = ElementTree.fromstring(draw_svg("The title", [RISING]))

    texts = [element.text for element in tree.iter() if element.tag.endswith("text")]
    assert tree.tag.endswith("svg")
    assert texts[0] == "The title"
    assert texts[-1] == "truth"


def test_an_empty_file_is_refused():
    with pytest.raises(UsageError, match="no point to draw"):
        draw_svg("A", [])
