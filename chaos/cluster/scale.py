"""Time scales of a run's pods: seconds show what takes minutes in production."""

from typing import Final

from attrs import frozen

from chaos.evidence import Settings


@frozen(kw_only=True)
class Scale:
    """Settings of a run's pods by name, in seconds."""

    heartbeat_s: float
    zombie_s: float
    sweep_s: float
    peer_check_s: float
    settle_s: float
    poll_s: float
    pre_stop_s: float
    abort_s: float
    closed_s: float
    kill_s: float
    deaths_max: int
    code_wait_s: float
    slots: int
    """So few that after an outage there is more work than slots: a claim must respect them."""

    @property
    def figures(self) -> Settings:
        """The limits that checkers judge by."""
        return Settings(
            heartbeat_s=self.heartbeat_s,
            zombie_s=self.zombie_s,
            sweep_s=self.sweep_s,
            peer_check_s=self.peer_check_s,
            settle_s=self.settle_s,
            poll_s=self.poll_s,
            drain_s=self.abort_s - self.pre_stop_s,
            close_s=self.closed_s - self.abort_s,
            deaths_max=self.deaths_max,
            code_wait_s=self.code_wait_s,
        )


SCALED: Final = Scale(
    heartbeat_s=0.3,
    zombie_s=3.0,
    sweep_s=0.5,
    peer_check_s=0.5,
    settle_s=0.5,
    poll_s=0.3,
    pre_stop_s=0.0,
    abort_s=4.0,
    closed_s=7.0,
    kill_s=9.0,
    deaths_max=5,  # pods die far more often than elsewhere, and no job is to be blamed for it
    code_wait_s=5.0,
    slots=12,
)
REAL: Final = Scale(
    heartbeat_s=30.0,
    zombie_s=300.0,
    sweep_s=60.0,
    peer_check_s=0.5,
    settle_s=5.0,
    poll_s=1.0,
    pre_stop_s=0.0,  # no load balancer needs a notice
    abort_s=40.0,
    closed_s=50.0,
    kill_s=60.0,
    deaths_max=3,
    code_wait_s=60.0,
    slots=1000,
)
SCALES: Final = {"scaled": SCALED, "real": REAL}
