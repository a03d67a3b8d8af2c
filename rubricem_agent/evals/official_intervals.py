"""The interval text that DeepSearchQA prints, letter by letter."""

import math

Z_95 = 1.96
FEW = 5


def wald_text(count: int, total: int) -> str:
    """Percent ± half-width of the 95 percent Wald interval, with the count; a count outside 0..total is moved to its edge."""
    if total == 0:
        return f"N/A ({count}/{total})"
    count = min(max(count, 0), total)
    share = count / total
    half_width = Z_95 * math.sqrt(share * (1.0 - share) / total) * 100.0
    note = " (CI not robust for n<=5)" if total <= FEW else ""
    return f"{round(share * 100.0, 2):.2f} ± {round(half_width, 2):.2f} ({count}/{total}){note}"
