"""Charts are well-formed SVG, hold what they are given, and show names as text."""

from xml.etree import ElementTree

import pytest

from research.line_chart import draw_svg, nice_ticks
from rubricem_env.domain.errors import UsageError
from rubricem_viewer.api.figures import Curve

RISING = Curve(name="truth", x=(1.0, 2.0, 3.0), y=(0.0, 0.5, 1.0))


def test_the_lowest_and_highest_point_lie_on_the_edges_of_the_frame():
    tree = ElementTree.fromstring(draw_svg("The title", [RISING]))

    (line,) = [element.get("points") for element in tree.iter() if element.tag.endswith("polyline")]
    texts = [element.text for element in tree.iter() if element.tag.endswith("text")]
    # Left edge 48, right edge 460 - 10; bottom 240 - 36, top 10.
    assert line.split() == ["48.0,204.0", "249.0,107.0", "450.0,10.0"]
    assert (texts[0], texts[-1]) == ("The title", "truth")


def test_markup_in_names_is_text():
    figure = draw_svg("<script>x</script>", [RISING.model_copy(update={"name": '"><img src=x onerror=y>'})])

    assert "<script" not in figure
    assert "<img" not in figure
    ElementTree.fromstring(figure)


def test_a_single_point_is_a_dot_in_the_middle():
    figure = draw_svg("A", [Curve(name="truth", x=(3.0,), y=(0.5,))])

    assert 'cx="249.0"' in figure
    assert "polyline" not in figure


def test_a_band_goes_there_above_and_back_below():
    figure = draw_svg("A", [Curve(name="mean", x=(1.0, 2.0), y=(0.5, 0.5), low=(0.0, 0.0), high=(1.0, 1.0))])

    assert 'points="48.0,10.0 450.0,10.0 450.0,204.0 48.0,204.0"' in figure


@pytest.mark.parametrize(
    ("low", "high", "ticks"),
    [(0.0, 1.0, [0, 0.2, 0.4, 0.6, 0.8, 1.0]), (0, 24, [0, 5, 10, 15, 20, 25]), (-0.2, 0.2, [-0.2, -0.1, 0, 0.1, 0.2])],
)
def test_ticks_are_round_numbers(low, high, ticks):
    assert nice_ticks([low, high]) == pytest.approx(ticks)


def test_a_chart_without_a_point_is_refused():
    with pytest.raises(UsageError, match="no point to draw"):
        draw_svg("A", [])
