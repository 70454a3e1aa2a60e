#!/usr/bin/env python3
"""How long the CUDA kernels should take on an A100 and an H200: the floor, and a prediction from the
bytes and products that the kernels are counted to need (cuda_counts_bench shows those counts beside
these formulas). Nothing is measured here and nothing was measured on a GPU: predictions are to be
held against tests/gpu/check.sh's table once there is one.

  predicted_times.py [--tokens 4096 32768 131072]
"""

import argparse

# What a device can do at its best. Floors divide by these.
#   A100 SXM 80 GB: 312 TFLOP/s of bf16 and 2.0 TB/s, from the data sheet.
#   H200 SXM: a bf16 product at 790 TFLOP/s and a copy at 4.3 TB/s (80 % and 90 % of the sheet's 989 and 4.8).
# SM clocks: the sheets' boost clocks.
PEAKS = {
    "A100": {"flops": 312e12, "bytes": 2.0e12, "sms": 108, "clock": 1.41e9},
    "H200": {"flops": 790e12, "bytes": 4.3e12, "sms": 132, "clock": 1.83e9},
}

# What kernels of the same make reach elsewhere; the prediction's shares of the peaks.
#   mma.sync: FlashAttention-2 (arXiv 2307.08691): 73 % of an A100, up to 335 TFLOP/s on Hopper.
#   moving rows: 92 % of the copy rate (https://github.com/sgl-project/sglang/pull/19103).
MMA_SYNC = {"A100": 0.73 * 312e12, "H200": 335e12}
ROWS = 0.92
LAUNCH = 4e-6  # seconds until a kernel runs and its end is seen
# select, cycles for 512 keys from L2: a pass that only reads and counts; the pass with a block scan a tile.
COUNT_CYCLES, SCAN_CYCLES = 100, 400

MODELS = {"Llama-3.1-8B": (32, 32, 8, 128), "Qwen2.5-7B": (28, 28, 4, 128)}  # layers, heads, KV heads, d
ELEMENT = 2  # bytes: bf16


def text_of(seconds):
    return f"{seconds * 1e6:.1f} us" if seconds < 1e-3 else f"{seconds * 1e3:.2f} ms"


def show(name, formula, times):
    """One row; times: device -> (floor, prediction), of all layers."""
    cells = "  ".join(f"{text_of(floor):>10} {text_of(guess):>10}" for floor, guess in times.values())
    print(f"{name:42}  {cells}  {formula}")


def score(model, tokens, window, given):
    """Fused scoring of all layers: K and V once, two products; twice the work without O and LSE."""
    layers, heads, kv_heads, dim = MODELS[model]
    passes = 1 if given else 2
    kv = kv_heads * tokens * 2 * dim * ELEMENT
    moved = passes * kv + 4 * kv_heads * tokens + 2 * heads * window * dim * ELEMENT
    flops = passes * 4 * heads * window * tokens * dim
    rows = heads // kv_heads * window
    padded = passes * 4 * kv_heads * dim * (-(-rows // 8) * 8) * (-(-tokens // 128) * 128)
    times = {}
    for device, peak in PEAKS.items():
        floor = layers * max(moved / peak["bytes"], flops / peak["flops"])
        guess = layers * max(moved / (ROWS * peak["bytes"]), padded / MMA_SYNC[device])
        times[device] = (floor, guess + passes * LAUNCH)
    bound = "products" if padded / MMA_SYNC["H200"] > moved / (ROWS * PEAKS["H200"]["bytes"]) else "bytes"
    label = f"score {model} {tokens // 1024}K W={window}{'' if given else ', no O, LSE'}"
    show(label, f"L*max(bytes/(.92 copy), 4*d*Hkv*pad8(R)*pad128(s){'' if given else '*2'}/mma.sync), {bound}", times)


def move(name, formula, layers, moved, launches=1):
    times = {device: (layers * moved / peak["bytes"], layers * moved / (ROWS * peak["bytes"]) + launches * LAUNCH)
             for device, peak in PEAKS.items()}
    show(name, formula, times)


def select(lists, rows, share):
    """One block a list, three digit passes and a writing one; floor: three passes over the keys."""
    kept = int(rows * share)
    floor_bytes = lists * (12 * rows + 4 * kept)
    counted = lists * (24 * rows + 4 * kept)  # 4 * rows * (1 + 4 passes) read, 4 * (rows + kept) written
    times = {}
    for device, peak in PEAKS.items():
        waves = -(-lists // (2 * peak["sms"]))
        block = rows / 512 * (4 * COUNT_CYCLES + SCAN_CYCLES) / peak["clock"]
        times[device] = (floor_bytes / peak["bytes"], max(waves * block, counted / (ROWS * peak["bytes"])) + LAUNCH)
    show(f"select {lists} x {rows}, keep {share:.0%}",
         f"max(waves*s/512*(4*{COUNT_CYCLES}+{SCAN_CYCLES}) cycles, lists*(24 s+4 k)/(.92 copy)), a block a list", times)


def movers(tokens):
    layers, _, kv_heads, dim = MODELS["Llama-3.1-8B"]
    row, kept, fresh = kv_heads * dim * ELEMENT, tokens // 2, int(0.15 * tokens)
    size = f"{tokens // 1024}K"
    # A launch for each layer: the call compares one.
    move(f"divergence of V {size}", "L*(2*Hkv*d*e+4)*s/(.92 copy)+L*launch", layers, 2 * row * tokens + 4 * tokens, layers)
    move(f"compact K and V {size}, keep half", "L*2*(2*Hkv*d*e)*moved/(.92 copy)", layers, 4 * row * kept)
    move(f"rotate kept K {size}, its own pass", "L*2*Hkv*d*e*kept/(.92 copy); 0 when fused", layers, 2 * row * kept)
    move(f"fuse 15 % {size}", "L*2*(2*Hkv*d*e)*r/(.92 copy)", layers, 4 * row * fresh)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tokens", nargs="+", type=int, default=[4096, 32768, 131072])
    options = parser.parse_args()
    print("Predicted, not measured. Whole models (all layers), bf16; a launch costs 4 us.")
    for device, peak in PEAKS.items():
        print(f"  {device}: {peak['flops'] / 1e12:.0f} TFLOP/s, {peak['bytes'] / 1e12:.1f} TB/s; "
              f"predictions: mma.sync {MMA_SYNC[device] / 1e12:.0f} TFLOP/s, {ROWS:.0%} of the copy rate")
    heads = "  ".join(f"{device + ' floor':>10} {'predicted':>10}" for device in PEAKS)
    print(f"\n{'':42}  {heads}  formula of the prediction")
    for tokens in options.tokens:
        for model in MODELS:
            for window in (64, 1):
                score(model, tokens, window, given=True)
            score(model, tokens, 64, given=False)
        movers(tokens)
    for lists in (8, 256):
        select(lists, 131072, 0.1)


if __name__ == "__main__":
    main()
