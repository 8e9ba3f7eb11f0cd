"""The race: foretell beside the engines that users would pick instead. `python -m benchmarks --help`.

network, cases, operators, memory_operators, models/, suites   what is run: ONNX models with seeded weights and inputs
contestants/, worker, contestant_process                       who runs it: a small module each, in its own process
race, compile_times, cpu_time, statistics                      turns, and what they say
machine, peak, count_macs                                      where: the CPU, its measured peak and bandwidth
results, table, bar_chart, page, baseline                      what is stored, printed, drawn and compared
run_suites, command_line, __main__                             the command
"""
