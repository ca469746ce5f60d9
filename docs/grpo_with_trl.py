"""GRPO by TRL's own trainer, with the reward of this package: `grpo_with_trl.py TRAIN.jsonl MODEL FOLDER [STEPS]`."""

import sys
from pathlib import Path

import torch
from datasets import Dataset
from peft import LoraConfig
from trl import GRPOConfig, GRPOTrainer

from mens_pipeline.corpus.schema.prompts import SYSTEM_PROMPT
from mens_pipeline.corpus.schema.records import read_pairs
from mens_pipeline.evaluation.evaluate import score_completions
from mens_pipeline.evaluation.reward import compute_reward, is_telling
from mens_pipeline.evaluation.tasks import training_tasks
from mens_pipeline.inference.generation import Completion

MOST_TOKENS = 128  # of a completion
train_set, model, folder, steps = (*sys.argv[1:], "200")[:4] if sys.argv[3:] else sys.exit(__doc__)
tasks = {name: task for name, (task, _) in training_tasks(read_pairs(Path(train_set))).items() if is_telling(task)}


def vox(completions: list, completion_ids: list, task: list, **_: object) -> list[float]:
    """Parse each completion, resolve its names and run its hidden tests: worth -0.1 to 1."""
    written = []
    for number, (name, turns, ids) in enumerate(zip(task, completions, completion_ids, strict=True)):
        about = {"task": name, "sample": number, "num_tokens": len(ids), "stopped": len(ids) < MOST_TOKENS}
        written.append(Completion(text=turns[-1]["content"], **about))
    scores = score_completions([tasks[name] for name in task], written)
    return [compute_reward(tasks[score.task], score).value for score in scores]


system, on_gpu = {"role": "system", "content": SYSTEM_PROMPT}, torch.cuda.is_available()
rows = [{"prompt": [system, {"role": "user", "content": task.prompt}], "task": name} for name, task in tasks.items()]
options = {"loss_type": "dr_grpo", "scale_rewards": "none", "mask_truncated_completions": True, "learning_rate": 2e-5}
sizes = {"max_completion_length": MOST_TOKENS, "num_generations": 8, "gradient_accumulation_steps": 8}
config = GRPOConfig(folder, max_steps=int(steps), bf16=on_gpu, use_cpu=not on_gpu, logging_steps=1, **sizes, **options)
trainer = GRPOTrainer(model, vox, config, Dataset.from_list(rows), peft_config=LoraConfig(target_modules="all-linear"))
trainer.train()
trainer.save_model(folder)
