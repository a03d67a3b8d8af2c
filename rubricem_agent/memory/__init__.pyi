from rubricem_agent.memory.bank import (
    Retrieval as Retrieval,
    RetrievalSettings as RetrievalSettings,
    RubricBank as RubricBank,
)
from rubricem_agent.memory.chroma_store import ChromaStore as ChromaStore
from rubricem_agent.memory.embed import HashingEmbedder as HashingEmbedder
from rubricem_agent.memory.gate import WriteGate as WriteGate
from rubricem_agent.memory.inject import Injector as Injector
from rubricem_agent.memory.probation import GuidedScore as GuidedScore, ProbationSettings as ProbationSettings
from rubricem_agent.memory.sentence_embed import SentenceEmbedder as SentenceEmbedder
from rubricem_agent.memory.snapshot import load_snapshot as load_snapshot, save_snapshot as save_snapshot
from rubricem_agent.memory.store import MemoryStore as MemoryStore
from rubricem_records.bank.bank_items import BankItem as BankItem
