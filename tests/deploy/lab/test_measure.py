"""Tables of benchmarks."""

from dskype.deploy.lab.emulator.measure import print_table


def test_no_figure_of_a_wide_table_is_cut_off(capsys):
    columns = ["", *(f"throughput of part {i}" for i in range(20))]
    print_table("wide", columns, [["all", *(f"1,234,5{i:02}" for i in range(20))]])
    printed = capsys.readouterr().out
    assert all(f"1,234,5{i:02}" in printed for i in range(20)) and printed.count("throughput") == 20 and "…" not in printed
