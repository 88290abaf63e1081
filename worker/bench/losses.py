"""How far apart the losses of two trainings on the same data are, and may be."""

MOST, MOST_MEAN = 0.02, 0.005


def compare(name, losses, expected):
    """Tells it; returns whether that is close enough."""
    differences = [abs(a - b) for a, b in zip(losses, expected, strict=True)]
    worst, mean = max(differences), sum(differences) / len(differences)
    print(f"  {name:28} worst {worst:.6f} at step {differences.index(worst)}, mean {mean:.6f}; "
          f"every tenth {[round(d, 4) for d in differences[9::10]]}", flush=True)
    return worst <= MOST and mean <= MOST_MEAN
