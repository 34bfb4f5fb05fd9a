"""Webhooks: events of an organization, signed and sent to its endpoints as Standard Webhooks describes.

Events are written in the transaction of what they tell about (outbox), and sent by workers until they are received.
"""

from advisor.webhooks.addresses import RefusedUrl
from advisor.webhooks.endpoints import EVENTS, TooMany, again, change, create, delete, ping, rotate, secret_of
from advisor.webhooks.outbox import (
    accelerator_calibrated,
    advice_ended,
    calibration_changed,
    prices_moved,
    subscribed,
    subscribers,
    winner_changed,
)
from advisor.webhooks.sending import send_due, sweep
