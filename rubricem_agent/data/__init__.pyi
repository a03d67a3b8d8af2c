from rubricem_agent.data.base import Teacher as Teacher
from rubricem_agent.data.batch_teacher import BatchTeacher as BatchTeacher
from rubricem_agent.data.chatml import (
    ChatSample as ChatSample,
    read_samples as read_samples,
    write_samples as write_samples,
)
from rubricem_agent.data.filter import harvest as harvest
from rubricem_agent.data.gemini_batch import GeminiBatch as GeminiBatch
from rubricem_agent.data.generate import Generation as Generation
from rubricem_agent.data.question_files import (
    read_question_file as read_question_file,
    read_training_set as read_training_set,
)
from rubricem_agent.data.teacher import ChatTeacher as ChatTeacher, ScriptedTeacher as ScriptedTeacher
