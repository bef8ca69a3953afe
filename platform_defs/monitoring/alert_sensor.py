"""The sensor that sends an alert when a job or check keeps failing, and a message when it succeeds again. It needs no Spark."""

import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import dagster as dg

from platform_defs.monitoring.alert import Alert
from platform_defs.monitoring.hooks import Hook, HookError, hooks_of
from platform_defs.monitoring.outcomes import FailureStreak, streaks
from platform_defs.settings import Settings

SENSOR = "alerts"
_SENDING_S = 30.0
"""For how long one evaluation starts to send messages. Dagster ends an evaluation after 60 s and then does not store its cursor, so that
the next one would send all of them again."""
_NO_HOOK = "no hook is set; legal: TIDEMARK_ALERT_WEBHOOK, TIDEMARK_ALERT_COMMAND, or TIDEMARK_ALERT_MAIL with TIDEMARK_ALERT_SMTP"


def alert_sensor(values: Settings) -> dg.SensorDefinition:
    """The sensor. It starts no run.

    Args:
        values: the settings, which configure the hooks.
    """

    @dg.sensor(
        name=SENSOR,
        minimum_interval_seconds=60,
        description="Sends an alert when a job or a check has failed TIDEMARK_ALERT_AFTER times in a row (`fresh`, `conservation_law`, "
        "checks that a sensor evaluated, and a stream that violates the conservation law: once), and a message when it succeeds again.",
    )
    def alerts(context: dg.SensorEvaluationContext) -> dg.SensorResult | dg.SkipReason:
        hooks, repository = hooks_of(values), context.repository_def
        if not hooks:
            return dg.SkipReason(_NO_HOOK)
        if repository is None:
            return dg.SkipReason("the context has no repository, so jobs and checks are not known; run the sensor in Dagster's daemon")
        streaks_by_subject = streaks(context.instance, repository, label_of(context), values.alert_after, time.time())
        delivery = Delivery(hooks, json.loads(context.cursor or "{}"), values.alert_ui)
        delivery.send(streaks_by_subject)
        for problem in delivery.problems:
            context.log.error(problem)
        return dg.SensorResult(cursor=json.dumps(delivery.alerts_sent), skip_reason=delivery.summary)

    return alerts


def label_of(context: dg.SensorEvaluationContext) -> str | None:
    """The value of the tag `.dagster/repository` of the runs of this code location; None outside of Dagster's daemon."""
    origin = context.code_location_origin
    return None if origin is None or context.repository_name is None else f"{context.repository_name}@{origin.location_name}"


@dataclass
class Delivery:
    """Sends the alerts that were not sent yet.

    Args:
        hooks: the hooks, by name.
        alerts_sent: for each subject with an open alert, the hooks that have delivered the alert, and since when and how often the subject
            has failed. If the subject has succeeded since, the hooks are those that have not delivered the message of its success yet.
            `send` changes it in place.
        ui: the base URL of Dagster's UI; None if it is not set.
    """

    hooks: Mapping[str, Hook]
    alerts_sent: dict[str, dict[str, Any]]
    ui: str | None = None
    problems: list[str] = field(default_factory=list, init=False)
    _sent: int = field(default=0, init=False)
    _sends_until_s: float = field(default=0.0, init=False)
    _failed_hooks: set[str] = field(default_factory=set, init=False)
    _undelivered: dict[str, str] = field(default_factory=dict, init=False)

    def send(self, streaks_by_subject: Mapping[str, FailureStreak]) -> None:
        """Send an alert for each subject that keeps failing, and a message for each that has succeeded since its alert.

        Each hook sends each of them once. A hook that fails is not used again in this call, and after half a minute no hook is. The next
        call sends what was not delivered, except the success of a subject that fails again.
        """
        self._sends_until_s = time.monotonic() + _SENDING_S
        for subject in [*self.alerts_sent]:
            if subject not in streaks_by_subject:  # it was removed from the code location
                del self.alerts_sent[subject]
        for subject, streak in streaks_by_subject.items():
            if streak.is_failing:
                self._report_failing(subject, streak)
            elif subject in self.alerts_sent and not streak.failures:
                self._report_recovered(subject, streak)

    @property
    def summary(self) -> str:
        """The number of sent messages, the subjects for which an alert is open, and the problems of hooks."""
        open_alerts = {subject: f"failing: {subject}" for subject in self.alerts_sent}
        states = [*(open_alerts | self._undelivered).values()] or ["no alert is open"]
        return "; ".join([*([f"{self._sent} sent"] if self._sent else []), *states, *self.problems])

    def _report_failing(self, subject: str, streak: FailureStreak) -> None:
        sent = self.alerts_sent.get(subject)
        if sent is None or sent.get("recovered"):  # it has succeeded in the meantime
            sent = {"since_s": streak.since_s, "failures": streak.failures, "delivered": []}
        alert = Alert(subject, "failing", streak.failures, sent["since_s"], streak.run_id, streak.reason, self._url(streak.run_id))
        delivered = [name for name in self.hooks if name in sent["delivered"] or self._deliver(name, alert)]
        if delivered != [*self.hooks]:
            self._undelivered[subject] = f"failing: {subject} (not delivered by every hook)"
        if delivered:
            self.alerts_sent[subject] = sent | {"delivered": delivered}

    def _report_recovered(self, subject: str, streak: FailureStreak) -> None:
        sent = self.alerts_sent[subject]
        alert = Alert(subject, "recovered", sent["failures"], sent["since_s"], streak.run_id, None, self._url(streak.run_id))
        undelivered = [name for name in sent["delivered"] if name in self.hooks and not self._deliver(name, alert)]
        if undelivered:
            self.alerts_sent[subject] = sent | {"delivered": undelivered, "recovered": True}
            self._undelivered[subject] = f"succeeds again: {subject} (not delivered by every hook)"
        else:
            del self.alerts_sent[subject]

    def _deliver(self, name: str, alert: Alert) -> bool:
        """Send an alert by a hook; returns whether it was delivered."""
        if name in self._failed_hooks or time.monotonic() > self._sends_until_s:
            return False
        try:
            problem = self.hooks[name](alert)
        except HookError as error:
            self._failed_hooks.add(name)
            self.problems.append(str(error))
            return False
        self._sent += 1
        if problem is not None and problem not in self.problems:
            self.problems.append(problem)
        return True

    def _url(self, run_id: str | None) -> str | None:
        return f"{self.ui}/runs/{run_id}" if self.ui and run_id else None
