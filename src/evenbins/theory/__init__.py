"""The mathematics of every structure: numbers in, numbers out.

`fpr` predicts filters and inverts the predictions, `levels` predicts balanced filters; `plan` and
`plan_balanced` turn what a user asks for into the integers a filter is built from, with the
predictions beside them. Nothing here imports a structure, so that a plan costs milliseconds and
no memory.
"""

from evenbins.theory.plan import FilterPlan, plan_blocked, plan_of_core, plan_standard
from evenbins.theory.plan_balanced import plan_balanced, plan_levels

__all__ = ["FilterPlan", "plan_balanced", "plan_blocked", "plan_levels", "plan_of_core", "plan_standard"]
