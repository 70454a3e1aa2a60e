"""Every press of kvpress: what of kvtriage does the same, or why nothing does.

README.md has the differences on purpose. test_every_press.py fails when kvpress has a press that is on
neither list.
"""

from __future__ import annotations

# Press -> how its kept set is had from kvtriage. The tests named in brackets hold it.
COUNTERPARTS = {
    "SnapKVPress": "policy snapkv [kept sets]",
    "StreamingLLMPress": "policy streaming [kept sets, differences]",
    "TOVAPress": "policy tova [kept sets]",
    "KnormPress": "policy knorm [kept sets]",
    "KeyDiffPress": "policy keydiff [kept sets]",
    "LagKVPress": "policy lagkv [kept sets, differences]",
    "ExpectedAttentionPress": "policy expected-attention [kept sets]",
    "ExpectedAttentionStatsPress": "policy expected-attention, query_mean and _covariance [kept sets]",
    "ObservedAttentionPress": "column sums, each divided by the rows that see it [kept sets, differences]",
    "FinchPress": "policy snapkv without a pool, window = the question; normalised: column sums [kept sets]",
    "PyramidKVPress": "policy pyramidkv, its counts as explicit_layers [kept sets, differences]",
    "AdaKVPress": "policy adakv, or adaptive heads over any scorer [kept sets, differences]",
    "CriticalKVPress": "policy criticalkv [kept sets, differences]",
    "CriticalAdaKVPress": "policy criticalkv with adaptive heads [kept sets, differences]",
    "RandomPress": "scorer RANDOM, another stream of numbers [differences]",
    "KeyRerotationPress": "renumber [wrappers]",
    "PerLayerCompressionPress": "explicit_layers [wrappers]",
    "ChunkPress": "one sequence per chunk in one call [wrappers]",
    "BlockPress": "one call per block [wrappers]",
    "ComposedPress": "one call after the other [wrappers]",
    "DecodingPress": "kept_tokens while decoding [wrappers]",
}

WITHOUT_COUNTERPART = {
    "BasePress": "abstract",
    "ScorerPress": "abstract",
    # Schedules: who calls when is the engine's business, the calls are those of the presses inside.
    "PrefillDecodingPress": "a schedule over two other presses",
    "CompressionRatioDecodingPress": "a schedule over DecodingPress",
    # Other units than rows.
    "ThinKPress": "drops channels of keys, not rows",
    "ChunkKVPress": "selects whole chunks",
    "EntropyGatedChunkKVPress": "selects whole chunks",
    "SimLayerKVPress": "chooses layers, and keeps all rows of the others",
    "DuoAttentionPress": "chooses heads by patterns measured before, and keeps all rows of the others",
    # Change what is kept.
    "CAMPress": "merges evicted values into kept ones",
    "MergingPress": "merges evicted values into kept ones",
    # Scores that are not built from K, V and attention of one prefill.
    "KVzipPress": "scores a second forward pass that repeats the context",
    "KVgradPress": "scores a second pass, and its gradients",
    "RestoreKVPress": "scores a second pass, and writes trained restore tokens",
    "KVComposePress": "scores a second pass and pads heads to common rows",
    "FastKVzipPress": "a trained gate",
    "KVzapPress": "a trained model of scores",
    "QFilterPress": "trained filters per model",
    "LUKVPress": "a budget curve measured before, per model",
    "DMSPress": "a threshold on scores, without a budget",
    # Scorers that kvtriage does not have.
    "CURPress": "leverage scores of K and V",
    "LeverageScorePress": "leverage scores by a random sketch of keys before RoPE",
    "NonCausalAttnPress": "attention without a causal mask, in chunks",
    "CompactorPress": "a mix of LeverageScorePress and NonCausalAttnPress",
    "CapPress": "a determinant criterion over values",
}
