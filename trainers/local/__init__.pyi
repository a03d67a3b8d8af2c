from .learner import (
    Learner as Learner,
    LossSettings as LossSettings,
    PolicyTokens as PolicyTokens,
    clipped_surrogate as clipped_surrogate,
    kl3 as kl3,
    policy_loss as policy_loss,
)
from .settings import LocalConfig as LocalConfig
