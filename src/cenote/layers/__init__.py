"""Layers that models are built of. Everything works on packed rows: tokens of all sequences in a row, no padding.

Letters in names give shapes: `T` tokens of the packed batch, `Q` rows whose result is wanted (`T` or fewer), `S`
sequences, `D` hidden size, `I` inner size of a feed-forward, `H` heads, `K` head size, `L` labels, `V` vocabulary.
So `hidden_TD` is `[T, D]`, `query_QHK` is `[Q, H, K]`, `rows_SD` is `[S, D]`.
"""
