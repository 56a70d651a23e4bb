"""Work: the effects of a decision, in the order and the lanes in which a host must perform them.

`works` holds the one rule for the order of effects. `Work` holds the one mapping of effects to
ports, and of the ports' results to commands. Every host uses them: the worker, the simulation and
the tests' world.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias, assert_never

from headgate.connector.config_providers import ConfigProviderError
from headgate.herder import messages as m
from headgate.host.ports import HostPorts
from headgate.ports import FencedError, TooLargeError, TransportError

Lane: TypeAlias = tuple[str | int, ...]
"""Name of a lane. Work of one lane is performed in order. The first item names the kind of lane."""
STATUSES: Lane = ("statuses",)


@dataclass(frozen=True, slots=True)
class Work:
    """One effect to be performed, or all statuses of a decision, to be written together."""

    effects: tuple[m.Effect, ...]
    ports: HostPorts

    @property
    def lane(self) -> Lane | None:
        """Lane of this work; None if it may be performed at any time, beside any other work."""
        return lane_of(self.effects[0])

    def perform(self) -> Sequence[m.Command]:
        """Perform the work through the ports.

        Returns:
            The answers that are known now. The others are posted.
        """
        first = self.effects[0]
        if isinstance(first, m.WriteStatus):
            statuses = [each for each in self.effects if isinstance(each, m.WriteStatus)]
            self.ports.write_statuses(statuses)
            return ()
        (effect,) = self.effects
        return _performed(effect, self.ports)

    def failed(self, reason: str) -> Sequence[m.Command]:
        """Return the answers to work that could not be performed because of `reason`, a bug or a
        limit of this process. Empty if the effect has no answer."""
        return _failed(self.effects[0], reason)


def works(effects: Sequence[m.Effect], ports: HostPorts) -> list[Work]:
    """Return the work of one decision in order: its effects as listed, then all its statuses
    together, then the `AwaitStatuses` effects that wait for them.

    Work of one `lane` must begin in this order, across decisions too. Lanes are independent of each
    other. `headgate.herder.messages` says why.
    """
    statuses = tuple(effect for effect in effects if isinstance(effect, m.WriteStatus))
    found = [Work((each,), ports) for each in effects if lane_of(each) != STATUSES]
    if statuses:
        found.append(Work(statuses, ports))
    found += [Work((each,), ports) for each in effects if isinstance(each, m.AwaitStatuses)]
    return found


def lane_of(effect: m.Effect) -> Lane | None:
    match effect:
        case m.ClaimLeadership() | m.AppendConfig():
            return ("config",)
        case m.WriteStatus() | m.AwaitStatuses():
            return STATUSES
        case m.SendGroup():
            return ("group",)
        case m.StartTask(spec):
            return ("run", spec.run)
        case m.SendTask(run) | m.StopTaskBy(run):
            return ("run", run)
        case (
            m.StartConnector(connector, run)
            | m.StopConnector(connector, run)
            | m.GenerateTaskConfigs(_, connector, run)
        ):
            return ("connector", connector, run)
        case m.AlterConnectorOffsets(token) | m.GiveUpAlteration(token):
            return ("alteration", token)
        case (
            m.ReadConfigToEnd()
            | m.ValidateConfig()
            | m.FenceProducers()
            | m.ReadConnectorOffsets()
            | m.MakeSessionKey()
            | m.ApplyLoggerLevel()
            | m.CallPeer()
            | m.Answer()
        ):
            return None
        case _:
            assert_never(effect)


def _performed(effect: m.Effect, ports: HostPorts) -> Sequence[m.Command]:
    match effect:
        case m.ClaimLeadership() | m.AppendConfig():
            return (_written(effect, ports),)
        case m.ReadConfigToEnd(token, statuses):
            return ports.read_to_end(token, statuses=statuses)
        case m.WriteStatus():
            ports.write_statuses((effect,))
        case m.AwaitStatuses(token):
            return ports.await_statuses(token)
        case m.SendGroup(request):
            ports.send_group(request)
        case m.StartTask(spec):
            ports.start_task(spec)
        case m.SendTask(run, command):
            ports.send_task(run, command)
        case m.StopTaskBy(run, grace_ms):
            ports.stop_task(run, grace_ms)
        case m.StartConnector():
            return _known(ports.start_connector(effect))
        case m.GenerateTaskConfigs():
            return _known(ports.generate_task_configs(effect))
        case m.StopConnector():
            return _known(ports.stop_connector(effect))
        case m.ReadConnectorOffsets():
            return _known(ports.read_offsets(effect))
        case m.AlterConnectorOffsets():
            return _known(ports.alter_offsets(effect))
        case m.ApplyLoggerLevel(logger, level):
            ports.set_logger_level(logger, level)
        case m.Answer(call_id, result):
            ports.answer(call_id, result)
        case (
            m.ValidateConfig()
            | m.FenceProducers()
            | m.CallPeer()
            | m.MakeSessionKey()
            | m.GiveUpAlteration()
        ):
            return _known(_answered(effect, ports))
        case _:
            assert_never(effect)
    return ()


def _known(answer: m.Command | None) -> Sequence[m.Command]:
    return () if answer is None else (answer,)


def _written(effect: m.ClaimLeadership | m.AppendConfig, ports: HostPorts) -> m.Command:
    match effect:
        case m.ClaimLeadership(generation):
            try:
                ports.claim(generation)
            except (FencedError, TransportError) as error:
                return m.LeadershipClaimed(generation, str(error))
            return m.LeadershipClaimed(generation)
        case m.AppendConfig(token, records, privileged):
            try:
                end = ports.append(records, privileged=privileged)
            except (FencedError, TransportError) as error:
                fenced, too_large = (isinstance(error, k) for k in (FencedError, TooLargeError))
                return m.ConfigAppendFailed(token, str(error), fenced, too_large)
            return m.ConfigAppended(token, end)
        case _:
            assert_never(effect)


def _answered(
    effect: m.ValidateConfig
    | m.FenceProducers
    | m.CallPeer
    | m.MakeSessionKey
    | m.GiveUpAlteration,
    ports: HostPorts,
) -> m.Command | None:
    match effect:
        case m.ValidateConfig(token, name, config):
            return m.ConfigValidated(token, ports.validate(name, config))
        case m.FenceProducers(token, connector, ids):
            try:
                ports.fence(connector, ids)
            except (TransportError, ConfigProviderError) as error:
                return m.ProducersFenced(token, str(error))
            return m.ProducersFenced(token)
        case m.CallPeer(token, url, call, hops, timeout_ms):
            try:
                result = ports.call_peer(url, token, call, hops, timeout_ms)
            except TransportError as error:
                result = m.Failure(m.ErrorKind.TIMEOUT, f"{url}: {error}")
            return None if result is None else m.PeerAnswered(token, result)
        case m.MakeSessionKey(token, _, key_size):
            return m.SessionKeyMade(token, *ports.make_session_key(key_size))
        case m.GiveUpAlteration(token):
            failure = ports.give_up_alteration(token)
            return None if failure is None else m.ConnectorOffsetsAltered(token, failure=failure)
        case _:
            assert_never(effect)


def _failed(effect: m.Effect, reason: str) -> Sequence[m.Command]:
    failure = m.Failure(m.ErrorKind.INTERNAL, reason)
    match effect:
        case m.ClaimLeadership(generation):
            return (m.LeadershipClaimed(generation, reason),)
        case m.AppendConfig(token):
            return (m.ConfigAppendFailed(token, reason, fenced=False),)
        case m.ReadConfigToEnd(token):
            return (m.ConfigEndRead(token, reason),)
        case m.AwaitStatuses(token):
            return (m.StatusesWritten(token),)
        case m.ValidateConfig(token):
            return (m.ConfigValidated(token, (reason,)),)
        case m.FenceProducers(token):
            return (m.ProducersFenced(token, reason),)
        case m.CallPeer(token):
            return (m.PeerAnswered(token, failure),)
        case m.ReadConnectorOffsets(token):
            return (m.ConnectorOffsetsRead(token, failure=failure),)
        case m.AlterConnectorOffsets(token):
            return (m.ConnectorOffsetsAltered(token, failure=failure),)
        case m.StartConnector(connector, run):
            return (m.ConnectorFailed(connector, run, reason, None),)
        case m.GenerateTaskConfigs(token, connector):
            return (m.TaskConfigsGenerated(token, connector, error=reason),)
        case m.StopConnector(connector, run):
            return (m.ConnectorStopped(connector, run, reason),)
        case (
            m.WriteStatus()
            | m.SendGroup()
            | m.StartTask()
            | m.SendTask()
            | m.StopTaskBy()
            | m.MakeSessionKey()
            | m.GiveUpAlteration()
            | m.ApplyLoggerLevel()
            | m.Answer()
        ):
            return ()
        case _:
            assert_never(effect)
