"""The race: foretell beside the engines that users would pick instead. `python -m benchmarks --help`.

cases, onnx_builder, operators, memory_operators, models/   what is run: ONNX models with seeded weights and inputs
contestants/, worker                                        who runs it: one small module each, in a process of its own
race, statistics                                            turns, and what they say
machine, peak                                               where: CPU, measured peak and bandwidth
table, page, baseline                                       what is printed, drawn and compared
"""
