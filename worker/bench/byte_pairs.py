"""Tokens of a real text, as GPT-2 would see it: trains a byte-pair tokenizer of GPT-2's kind and
size on the text and writes the text's tokens as a token file (worker/data/token_file.h).

    python3 worker/bench/byte_pairs.py OUTPUT TEXT...

Each TEXT is a document; a token for the end of text follows each. Needs the package tokenizers.
"""

import array
import struct
import sys

from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

VOCABULARY = 50257
END_OF_TEXT = "<|endoftext|>"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    output, paths = sys.argv[1], sys.argv[2:]
    texts = []
    for path in paths:
        with open(path, encoding="utf-8", errors="replace") as file:
            texts.append(file.read())
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(
        texts,
        trainers.BpeTrainer(
            vocab_size=VOCABULARY,
            special_tokens=[END_OF_TEXT],
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        ),
    )
    end = tokenizer.token_to_id(END_OF_TEXT)
    ids = array.array("H")
    for encoded in tokenizer.encode_batch(texts):
        ids.extend(encoded.ids)
        ids.append(end)
    with open(output, "wb") as file:
        file.write(b"MUSTERTK" + struct.pack("<IIQQ", 1, 2, len(ids), VOCABULARY))
        ids.tofile(file)
    print(f"{len(ids):,} tokens of {tokenizer.get_vocab_size():,} kinds, {len(paths):,} documents")


if __name__ == "__main__":
    main()
