"""Figure 1 of the paper, one box a file. Needs nothing but torch.

::

                                               logits [batch, tgt_len, vocab]
                                                             ▲
                                                       ┌───────────┐
                                                       │  Linear   │               transformer.py
                                                       └───────────┘
                                                             ▲
                                          ┌─────────────────────────────────────┐
                                          │             Add & Norm              │
                                          │             Feed-forward            │  sublayers.py
          memory                          │                                     │
   [batch, src_len, d_model]              │             Add & Norm              │
                ┌─────────────────────────┼───────────► Multi-head attention    │  attention.py
                │                         │             over the memory         │
  ┌─────────────────────────────┐         │                                     │
  │     Add & Norm              │         │             Add & Norm              │
  │     Feed-forward            │         │             Masked multi-head       │  masks.py
  │                             │         │             self-attention          │
  │     Add & Norm              │         │                                     │
  │     Multi-head              │         │             decoder.py  × N         │
  │     self-attention          │         └─────────────────────────────────────┘
  │                             │                            ▲
  │     encoder.py  × N         │                            │
  └─────────────────────────────┘                            │
                ▲                                            │
  embedding + positional encoding             embedding + positional encoding      embeddings.py
                ▲                                            ▲
       src [batch, src_len]                        tgt [batch, tgt_len]

``config.py`` holds every choice that shapes the model, and the named ones (``PRESETS``). Boxes are read from below.
"""
