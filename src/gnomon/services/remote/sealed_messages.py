"""Encryption of messages: the bus carries the inputs and outputs of attempts, and cannot read them.

An envelope is bound to one attempt. An input or output that is moved to the message of another attempt does not open.
"""

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace

from gnomon.core.messages import EndedReport, TaskMessage
from gnomon.core.model import Result
from gnomon.core.payloads import has_sealed_field, is_sealed, message_context
from gnomon.core.runs.outcomes import AttemptOutcome
from gnomon.ports.payloads import PayloadCipher

_UNREADABLE = "bad_output: the output is encrypted with a key that payload.keys lacks, or was altered"


class MessageSealer:
    """Encrypts and decrypts the payloads of messages; without a cipher they stay as they are."""

    def __init__(self, cipher: PayloadCipher | None) -> None:
        self._cipher = cipher

    def seal_task(self, message: TaskMessage) -> TaskMessage:
        """The message with an encrypted input."""
        if self._cipher is None:
            return message
        context = message_context("input", message.task_id, message.fence)
        sealed = self._cipher.seal(context, msgspec.json.encode(message.input))
        return replace(message, input=msgspec.json.decode(sealed))

    def unseal_task(self, message: TaskMessage) -> TaskMessage:
        """The message with its input in plain text, if this process can decrypt it."""
        if self._cipher is None or not has_sealed_field(message.input):
            return message
        context = message_context("input", message.task_id, message.fence)
        given = self._cipher.unseal(context, msgspec.json.encode(message.input))
        return replace(message, input=msgspec.json.decode(given))

    def seal_report(self, report: EndedReport) -> EndedReport:
        """The report with an encrypted output, and encrypted messages of an agent."""
        return replace(
            report,
            output=self._sealed("output", report, report.output),
            turn=self._sealed("session", report, report.turn),
        )

    def _sealed(self, kind: str, report: EndedReport, body: Raw | UnsetType) -> Raw | UnsetType:
        if self._cipher is None or body is UNSET:
            return body
        return Raw(self._cipher.seal(message_context(kind, report.task_id, report.fence), bytes(body)))

    def outcome(self, report: EndedReport) -> AttemptOutcome:
        """The outcome in the report. If its output cannot be decrypted, the attempt has failed for good."""
        found = self._with_turn(report, report.outcome())
        if found.output is None or not is_sealed(found.output):
            return found
        context = message_context("output", report.task_id, report.fence)
        output = found.output if self._cipher is None else self._cipher.unseal(context, found.output)
        if is_sealed(output):
            return AttemptOutcome(result=Result.GAVE_UP, error=_UNREADABLE, logs=found.logs)
        return replace(found, output=output)

    def _with_turn(self, report: EndedReport, found: AttemptOutcome) -> AttemptOutcome:
        """The outcome with its messages of an agent in plain text; without them, if they cannot be decrypted."""
        if found.turn is None or not is_sealed(found.turn):
            return found
        context = message_context("session", report.task_id, report.fence)
        turn = found.turn if self._cipher is None else self._cipher.unseal(context, found.turn)
        return replace(found, turn=None if is_sealed(turn) else turn)
