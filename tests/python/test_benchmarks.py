# SPDX-License-Identifier: Apache-2.0
"""The measuring program: what it computes from times, and that the documents hold what was recorded."""

import copy
import json
import sys
import time

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from benchmarks import attention, cpu, forced_target, gpu_tables, machine, openvino_cpu, peer_process  # noqa: E402
from benchmarks import per_kernel, plot, serving_tables, tables, timing, vllm_cpu  # noqa: E402
from benchmarks.growth import growth, superlinear  # noqa: E402
from benchmarks.work import Work, leave_out_other_work  # noqa: E402

RATES = {"read_gbs": 10.0, "f32_gflops": 100.0, "bf16_gflops": 1000.0, "int8_gops": 2000.0}
CEILING = {"target": "amx", "num_threads": 2, **RATES}


def sample_work(**changes) -> Work:
    values = {
        "name": "sleep",
        "quire": [lambda: time.sleep(0.001)],
        "kernel": lambda: "cpu/portable/sleep",
        "flops": 1e6,
        "bytes": 1e6,
        "products": "bf16",
    }
    return Work(**(values | changes))


def sample_results() -> dict:
    stamp = {"commit": "abc", "date": "2026-01-02T03:04Z", "torch": "2.0", "version": "0.1"}
    row = {
        "case": "fused_qkv bf16 T=1",
        "threads": 2,
        "kernel": "cpu/amx/fused_qkv_matmul",
        "quire": {"us_min": 100.0, "us_median": 120.0, "runs": 9},
        "peers": {"torch linear": {"us_min": 250.0, "us_median": 260.0, "runs": 9, "difference": 0.0}},
        "gbs": 12.5,
        "tflops": 0.5,
        "ceiling": "read",
        "share": 0.85,
        "probe_before": CEILING,
        "probe_after": CEILING | {"read_gbs": 11.0},
        "neighbours": 0.0,
        "peer": "torch linear",
        "ratio": 2.5,
    }
    points = [{"n": n, "work": n, "us_min": 10.0 * n, "us_median": 11.0 * n} for n in (1, 2, 4)]
    return {
        "machine": {"cpu": "Some CPU", "cores": 2, "architecture": "x86_64"},
        "rows": [row | stamp],
        "curves": [{"curve": "decode", "axis": "context", "threads": 2, "points": points} | stamp],
        "memory": [{"op": "mla_prefill", "new": 256, "context": 512, "extra_mib": 3.0} | stamp],
    }


def test_document_holds_what_is_recorded():
    document = plot.DOCUMENT.read_text()
    assert document == tables.replace_generated(document, tables.generate(plot.load_results()))


def test_table_follows_the_record():
    results = sample_results()
    text = tables.generate({"some-machine": results})
    row = "| fused_qkv bf16 T=1 | 100 (120) | torch linear 250 | 2.50× | 12.5 | 0.5 | 85 % of read | `cpu/amx` |"
    assert row in text
    assert "Probe: read 11 GB/s, f32 100 GFLOP/s, bf16 1000 GFLOP/s, int8 2000 GOP/s." in text
    assert "| decode | context 1 to 4 | 10 to 40 | 1.00 | as the work |" in text
    assert "| mla_prefill | 256 | 512 | 3 |" in text
    changed = copy.deepcopy(results)
    changed["rows"][0]["quire"]["us_min"] = 101.0
    assert tables.generate({"some-machine": changed}) != text


def test_rows_of_a_forced_target_stand_apart():
    results = sample_results()
    results["rows_avx2"] = [results["rows"][0] | {"threads": threads, "peer_versions": {"peer": "7.5"}} for threads in (1, 2)]
    text = tables.generate({"some-machine": results})
    heads = [line for line in text.splitlines() if line.startswith("### ") and "thread" in line and "Growth" not in line]
    forced = ", all contenders forced to avx2"
    assert heads == ["### 2 threads", f"### 2 threads{forced}", f"### 1 thread{forced}"]
    assert "commit abc, torch 2.0, peer 7.5. Record" in text


def test_replacing_touches_only_what_stands_between_the_marks():
    document = f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n"
    new = tables.generate({"some-machine": sample_results()})
    replaced = tables.replace_generated(document, new)
    assert replaced.startswith("before\n") and replaced.endswith("\nafter\n") and "old" not in replaced
    assert tables.replace_generated(replaced, new) == replaced


def test_growth_is_time_over_work():
    linear = [{"n": n, "work": n, "us_min": 5.0 + n} for n in (1, 2, 4, 8)]
    assert superlinear(linear) == []
    quadratic = [{"n": n, "work": n, "us_min": float(n * n)} for n in (1, 2, 4)]
    assert growth(quadratic) == [2.0, 2.0]
    assert superlinear(quadratic) == [2, 4]
    as_work = [{"n": n, "work": n * n, "us_min": float(n * n)} for n in (1, 2, 4)]
    assert superlinear(as_work) == []


@pytest.mark.parametrize(
    ("work", "floor"),
    [
        (sample_work(flops=1e9, bytes=1e9), (1e5, "read")),
        (sample_work(flops=1e12, bytes=1e9), (1e6, "amx bf16")),
        (sample_work(flops=1e12, bytes=1e9, products="f32"), (1e7, "amx f32")),
        (sample_work(flops=1e12, bytes=1e9, products="int8"), (5e5, "amx int8")),
    ],
)
def test_floor_is_the_slower_of_reading_and_multiplying(work, floor):
    time_us, binding = cpu.floor_us(work, CEILING)
    assert (pytest.approx(time_us), binding) == floor


def test_contenders_take_turns_and_layers_too():
    calls = []
    contenders = {name: [lambda n=name, i=i: calls.append((n, i)) or time.sleep(0.002) for i in range(3)] for name in "AB"}
    times = timing.time_in_turns(contenders, 0.1)
    assert times["A"].runs > 10 and 1900 < times["A"].us_min < 20_000
    order = [name for name, _ in calls]
    switches = sum(a != b for a, b in zip(order, order[1:], strict=False))
    assert switches >= 2 * timing.MIN_BURSTS - 1
    layers = [layer for name, layer in calls if name == "A"]
    assert layers[:7] == [0, 1, 2, 0, 1, 2, 0]


def test_a_contender_in_another_process_times_its_own_calls():
    class Remote:
        asked = 0

        def burst(self, seconds):
            self.asked += 1
            return [7.0, 5.0, 6.0]

    remote = Remote()
    times = timing.time_in_turns({"here": [lambda: None], "there": remote}, 0.1)
    assert (times["there"].us_min, times["there"].us_median) == (5.0, 6.0)
    assert times["there"].runs == 3 * remote.asked and remote.asked >= timing.MIN_BURSTS


PEER = """
import numpy as np
from benchmarks.peer_process import serve

class Doubled:
    def __init__(self, x):
        self.x, self.threads = x, 0
    def use_threads(self, threads):
        self.threads = threads
        return [lambda: self.x]
    def result(self):
        return 2 * self.x

def doubled(arrays, *, layers):
    def refuse():
        raise ValueError("not on this processor\\nat all")
    return {"twice": lambda: Doubled(arrays["x"]), "refused": refuse}

def end(arrays):
    import os
    os._exit(3)

serve(lambda: ("7.5", {"double": doubled, "end": end}))
"""


def start_peer(tmp_path, monkeypatch):
    (tmp_path / "a_peer.py").write_text(PEER)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return peer_process.PeerProcess("peer", sys.executable, "a_peer")


def test_a_peer_process_makes_work_and_times_it(tmp_path, monkeypatch, capsys):
    process = start_peer(tmp_path, monkeypatch)
    assert process.version == "7.5" and process.kinds == ["double", "end"]
    made = peer_process.remote_peers([process], "double", {"x": np.arange(3.0)}, layers=2)
    assert list(made) == ["peer twice"] and made["peer twice"].result.tolist() == [0, 2, 4]
    assert "left out: peer refused: not on this processor at all\n" in capsys.readouterr().out
    made["peer twice"].use_threads(2)
    times = timing.time_in_turns(made, 0.1)
    assert times["peer twice"].runs > 10
    assert peer_process.remote_peers([process], "another kind", {}) == {}


def test_a_peer_process_that_ends_is_left_out_and_started_again(tmp_path, monkeypatch, capsys):
    process = start_peer(tmp_path, monkeypatch)
    assert peer_process.remote_peers([process], "end", {}) == {}
    assert "left out: peer ended with status 3" in capsys.readouterr().out
    assert "peer twice" in process.make("double", {"x": np.arange(3.0)}, layers=2)


@pytest.mark.parametrize("peer", [vllm_cpu, openvino_cpu])
def test_an_environment_without_the_peer_says_so(peer):
    with pytest.raises(RuntimeError, match="cannot be loaded: no vllm in this|cannot be loaded: No module named 'openvino'"):
        peer.start(sys.executable)


def test_nibbles_are_packed_in_the_order_that_is_asked_for():
    codes = torch.arange(16).reshape(1, 16)
    assert vllm_cpu.pack_nibbles(codes, range(8)).tolist() == [[0x76543210, 0xFEDCBA98 - (1 << 32)]]
    assert vllm_cpu.pack_nibbles(codes, vllm_cpu.AWQ_ORDER)[0, 0] == 0x75316420


def test_a_layer_of_four_caches_is_cold_by_itself():
    cache = timing.cache_bytes()
    assert [timing.layers_beyond_cache(cache * size) for size in (1, 2, 3.9, 4, 100)] == [5, 3, 2, 1, 1]


def test_a_forced_target_starts_the_program_again_with_every_librarys_variable(monkeypatch):
    for name in ("QUIRE_CPU_TARGET", *forced_target.ENVIRONMENT["avx2"]):
        monkeypatch.delenv(name, raising=False)
    started = []
    monkeypatch.setattr(forced_target.os, "execve", lambda *command: started.append(command))
    forced_target.run_again("avx2", "benchmarks.cpu", ["--target", "avx2"])
    [(program, command, environment)] = started
    assert command == [program, "-m", "benchmarks.cpu", "--target", "avx2"]
    assert (environment["QUIRE_CPU_TARGET"], environment["ONEDNN_MAX_CPU_ISA"]) == ("avx2", "AVX2")
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    forced_target.run_again("avx2", "benchmarks.cpu", ["--target", "avx2"])
    assert len(started) == 1 and forced_target.section(forced_target.target()) == "rows_avx2"


def test_a_peer_with_another_result_is_no_contender(capsys):
    peers = {"same": [lambda: None], "other": [lambda: None], "broken": [lambda: None]}
    work = sample_work(peers=peers, differences={"same": 0.01, "other": 1.3, "broken": float("nan")})
    left = leave_out_other_work(work)
    assert list(left.peers) == list(left.differences) == ["same"]
    assert "other: its result is 1.3 of its size away" in capsys.readouterr().out


def test_a_large_batch_repeats_sequences_in_memory_of_their_own(monkeypatch):
    monkeypatch.setattr(attention, "layers_beyond_cache", lambda size: 2)
    made = attention.Batch(16, 1, 130, "bf16")
    assert made.cache.blocks.shape[:3] == (32, 2, 2) and made.cache.page_table.unique().numel() == 32
    work = attention.attention("decode", "bf16", batch=16, new=1, cached=130)
    assert set(work.differences) == {"torch sdpa f32", "torch sdpa bf16"} and max(work.differences.values()) < 0.01


def test_row_names_the_fastest_peer_and_the_binding_ceiling():
    peers = {"slow": [lambda: time.sleep(0.004)], "quick": [lambda: time.sleep(0.002)]}
    work = sample_work(peers=peers, differences={"slow": 0.0, "quick": 0.0}, errors={"quire": 0.25, "quick": 0.5})
    row = cpu.measure_row(work, 1, 0.1)
    assert (row["quire"]["error"], row["peers"]["quick"]["error"]) == (0.25, 0.5) and "error" not in row["peers"]["slow"]
    assert row["peer"] == "quick" and 1.0 < row["ratio"] < 4.0
    assert row["probe_before"]["target"] == "portable" and row["threads"] == 1
    assert row["ceiling"] in ("read", "portable bf16") and 0.0 < row["share"] < 1.0
    assert json.loads(json.dumps(row)) == row


def test_record_replaces_a_row_and_keeps_the_others(tmp_path):
    path = tmp_path / "machine" / "cpu.json"
    record = cpu.Record(path)
    record.add("rows", ("case", "threads"), {"case": "a", "threads": 1, "x": 1})
    record.add("rows", ("case", "threads"), {"case": "a", "threads": 2, "x": 2})
    again = cpu.Record(path)
    again.add("rows", ("case", "threads"), {"case": "a", "threads": 1, "x": 3})
    rows = json.loads(path.read_text())["rows"]
    assert [(row["threads"], row["x"]) for row in rows] == [(1, 3), (2, 2)]
    assert {"commit", "date", "torch", "version"} <= rows[0].keys()


def test_machine_is_described():
    described = machine.describe()
    assert described["cpu"] and described["cores"] >= 1 and described["cache_mib"] >= 1
    assert machine.folder_name({"cpu": "Arm Neoverse N1", "cores": 2, "isa": ["asimd"]}) == "arm-neoverse-n1-2-cores"
    hidden = {"cpu": "Intel(R) Xeon(R) Processor @ 2.50GHz", "cores": 2, "isa": ["avx2", "avx512_vnni"]}
    assert machine.folder_name(hidden) == "intel-xeon-processor-avx512-vnni-2-cores"
    hidden["isa"] += ["avx512_bf16", "amx_bf16"]
    assert machine.folder_name(hidden) == "intel-xeon-processor-amx-2-cores"


def test_pictures_are_drawn(tmp_path):
    pytest.importorskip("matplotlib")
    results = sample_results()
    plot.draw(tmp_path, results | {"rows_avx2": results["rows"]}, ["svg"])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["curves.svg", "rows_2.svg", "rows_avx2_2.svg"]
    assert "torch linear" in (tmp_path / "rows_2.svg").read_text()


def test_the_gpu_document_is_what_the_records_make():
    records = gpu_tables.load_records(plot.ROOT / "benchmarks" / "results")
    text = plot.GPU_DOCUMENT.read_text()
    assert tables.replace_generated(text, gpu_tables.generate(records)) == text


@pytest.mark.parametrize("document", plot.GPU_KERNEL_DOCUMENTS, ids=lambda path: path.name)
def test_the_kernel_documents_are_what_the_records_make(document):
    file = plot.GPU_KERNEL_DOCUMENTS[document]
    records = gpu_tables.only(gpu_tables.load_records(plot.ROOT / "benchmarks" / "results"), file)
    assert any(records.values())
    text = document.read_text()
    assert tables.replace_generated(text, gpu_tables.generate(records)) == text


def test_rows_of_several_commits_say_which():
    rows = [{"commit": c, "op": op} for c, op in (("a", "rope"), ("b", "store"), ("a", "rope"), ("a", "norm"))]
    assert gpu_tables.commits_of(rows) == "commit a (rope, norm), commit b (store)"
    assert gpu_tables.commits_of(rows[:1]) == "commit a"


def test_gpu_shapes_are_sorted_by_their_numbers():
    rows = [{"op": "a", "shape": f"m T={t}"} for t in (128, 16, 2)] + [{"op": "a", "shape": "k T=9"}]
    ordered = [row["shape"] for row in sorted(rows, key=gpu_tables.by_op_and_size)]
    assert ordered == ["k T=9", "m T=2", "m T=16", "m T=128"]


def test_rows_that_only_move_data_stand_beside_a_copy_of_as_many_bytes():
    record = {"op": "store", "shape": "s", "us": 20.0, "us_clean": 18.0, "gbs": 3000.0, "tflops": 0.0, "kernel": "k"}
    record |= {"device": "d", "driver": "1", "commit": "c", "percent_of_copy": 76.4}
    record |= {"ceiling_read_gbs": 4000.0, "ceiling_copy_gbs": 3900.0, "ceiling_graph_us": 2.0}
    copy = {"us_same_copy": 17.0, "percent_of_same_copy": 85.0, "percent_of_same_copy_clean": 80.0}
    memcpy = {"us_memcpy": 18.0, "percent_of_memcpy": 90.0}  # of records before there was a clean one
    assert "copy of as many bytes" not in gpu_tables.section("f", [record])
    shown = gpu_tables.section("f", [record | copy, record | memcpy, record])
    assert "| 76 % | 17 | 85 % | 80 % | `k` |" in shown
    assert "| 76 % | 18 | 90 % | – | `k` |" in shown
    assert "| – | – | – | – | `k` |" in shown


def test_calls_of_a_profile_are_the_sequence_that_repeats():
    launches = [{"kernel": name, per_kernel.TIME: float(at)} for at, name in enumerate("aabaabaa")]
    assert [[launch["kernel"] for launch in call] for call in per_kernel.calls_of(launches)] == [["a", "a", "b"]] * 2


def test_the_record_of_a_kernel_is_the_median_of_its_calls():
    def call(*microseconds):
        rest = {per_kernel.MEMORY: 50.0, per_kernel.TENSOR: 0.0, per_kernel.READ: 1024.0}
        return [{"kernel": "k", per_kernel.TIME: us * 1e3} | rest for us in microseconds]

    rows = per_kernel.record("case", "commit", [call(9, 1), call(5, 2), call(4, 3)])
    assert [row["us"] for row in rows] == [5.0, 2.0]
    assert rows[0]["calls"] == 3 and rows[0]["read_bytes"] == 1024


@pytest.mark.parametrize("document", plot.OTHER_DOCUMENTS, ids=lambda path: path.name)
def test_the_pages_with_other_records_show_them(document):
    text, descriptions = document.read_text(), plot.OTHER_DOCUMENTS[document]
    generated = gpu_tables.generate_by_machine(plot.ROOT / "benchmarks" / "results", descriptions)
    assert tables.replace_generated(text, generated) == text
    assert "###" in generated


def test_the_table_of_overlapping_pairs_says_what_is_saved():
    row = {"shape": "m T=1", "pair": "a, b", "us_after": 12.34, "us_overlapping": 10.0}
    row |= {"us_min_after": 12.0, "us_min_overlapping": 9.5}
    text = gpu_tables.overlap_table({"device": "d", "torch": "t", "commit": "c", "rows": [row]})
    assert text.startswith("d, torch t, commit c.")
    assert "| m T=1 | a, b | 12.3 | 10 | 12 | 9.5 | 2.3 |" in text


def served(**changes):
    row = {"model": "m", "row": "decode:8x512", "unit": "ms", "own": "sdpa", "time_ratio": 0.7512}
    row |= {"values": {"sdpa": [4.0, 9.0, 5.0], "quire": [3.0, 4.0, 3.5]}, "device": "d", "torch": "t", "vllm": "1"}
    return row | {"commit": "c", "at": "2026-01-02T03:04Z"} | changes


def test_the_table_of_whole_models_shows_the_numbers_of_its_ratio():
    """Medians of vLLM's records, the fastest of transformers': that is the smallest time, the largest rate."""
    assert "| m |  | decode | 8 × 512 | ms | sdpa | 5 | 3.5 | 0.751 |" in serving_tables.serving_table([served()])
    assert "| m, 4 layers |  | decode |" in serving_tables.serving_table([served(layers=4)])
    fastest = served(statistic="fastest", dtype="float32", threads=2, row="mixed:8x512")
    row = "| m | float32, 2 threads | decode, padded on the left | 8 × up to 512 | ms | sdpa | 4 | 3 | 0.751 |"
    assert row in serving_tables.serving_table([fastest])
    rate = served(statistic="fastest", unit="tokens/s", row="prefill:1x512")
    assert "| prefill | 1 × 512 | tokens/s | sdpa | 9 | 4 | 0.751 |" in serving_tables.serving_table([rate])
    about = serving_tables.about([served(neighbours=0.25), served(neighbours=0.5, commit="e", at="2026-01-04T00:00Z")])
    assert about.startswith("d; vllm 1, torch t; 2026-01-02 to 2026-01-04, commit c, e.") and "25 to 50 %" in about


def test_serving_transformers_measures_both_sides_and_replaces_a_row(tmp_path, monkeypatch, capsys):
    transformers = pytest.importorskip("transformers")
    from benchmarks import serving_transformers as serving

    path = tmp_path / "machine" / "serving_transformers.json"
    rows = ["prefill:2x40", "mixed:3x20", "decode:1x8"]
    asked = [*rows, "--layers", "2", "--heads", "4", "--rounds", "2", "--json", str(path)]
    for _ in range(2):
        monkeypatch.setattr("sys.argv", ["serving_transformers", *asked])
        serving.main()
    records = json.loads(path.read_text())
    assert [record["row"] for record in records] == rows
    assert [record["unit"] for record in records] == ["tokens/s", "ms", "ms"]
    for record in records:
        assert {side: len(values) for side, values in record["values"].items()} == {"sdpa": 2, "quire": 2}
        assert record["transformers"] == transformers.__version__ and 0 < record["time_ratio"] < 100
    assert "time of quire / own" in capsys.readouterr().out
    assert "3 × up to 20" in serving_tables.serving_table(records)


def test_serving_transformers_refuses_sides_that_disagree(monkeypatch):
    pytest.importorskip("transformers")
    import quire.integrations.transformers
    from benchmarks import serving_transformers as serving

    quire.integrations.transformers.register()
    arguments = type("Arguments", (), {"heads": 4, "layers": 2})
    models = serving.make_models(serving.shape_of(arguments), torch.float32)
    mine, theirs = models["quire"].parameters(), models["sdpa"].parameters()
    assert all(a.data_ptr() == b.data_ptr() for a, b in zip(mine, theirs, strict=True))
    head = models["quire"].lm_head
    head.weight = torch.nn.Parameter(-head.weight, requires_grad=False)
    with pytest.raises(SystemExit, match="standard deviations apart"):
        serving.measure(models, serving.Row("decode", 1, 8), 1)


def run_model_benchmark(path, **changes):
    from outside.tiny_gguf import write_tiny_gguf

    from benchmarks import model

    options = {"rows": [(20, 3), (4, 2)], "threads": 1, "rounds": 2, "peers": sys.executable}
    options |= {"contenders": ["quire exact", "quire mixed", "llama.cpp"]} | changes
    file = write_tiny_gguf(path / "tiny.gguf")
    return model.measure(type("Options", (), options), file)


def test_the_model_benchmark_measures_in_turns_and_names_peers_that_cannot_run(tmp_path):
    """Nobody installs llama.cpp here: what a program that does not start says is recorded, and it is no column."""
    from benchmarks import model, model_tables

    record = run_model_benchmark(tmp_path)
    assert "xllamacpp" in record["contenders"]["llama.cpp"]["error"]
    for row, lengths in zip(record["rows"], [(20, 3), (4, 2)], strict=True):
        assert (row["prompt_tokens"], row["new_tokens"]) == lengths
        assert sorted(row["tokens_per_second"]) == ["quire exact", "quire mixed"]
        for values in row["tokens_per_second"].values():
            assert [len(values[kind]) for kind in ("prompt", "generate")] == [2, 2] and min(values["prompt"]) > 0
    path = tmp_path / "machine" / "model.json"
    model.save(path, record | {"threads": 4})
    model.save(path, record)
    model.save(path, record | {"when": "2026-01-02T03:04Z"})
    kept = json.loads(path.read_text())
    assert [(r["threads"], r["when"][:4]) for r in kept] == [(1, "2026"), (4, record["when"][:4])]
    shown = model_tables.model_table(kept)
    assert "| tokens | quire exact | quire mixed | Quire / fastest peer |" in shown
    assert "llama.cpp did not run here: `ModuleNotFoundError" in shown


def test_the_table_of_the_model_shows_medians_and_the_ratio_to_the_fastest_peer():
    from benchmarks import model_tables

    def speeds(*values):
        return {"prompt": [2 * value for value in values], "generate": list(values)}

    row = {"prompt_tokens": 32, "new_tokens": 64, "neighbours": 0.02}
    row["tokens_per_second"] = {"quire exact": speeds(10, 30, 20), "quire int8": speeds(40, 30, 35), "a": speeds(70), "b": speeds(7)}
    about = {name: {"version": "1"} for name in row["tokens_per_second"]}
    record = {"machine": {"cpu": "c"}, "threads": 2, "model": "m", "when": "2026-01-02T03:04Z", "commit": "abc", "contenders": about}
    text = model_tables.model_table([record | {"rows": [row]}])
    assert "| 64 after 32 | 20 (30) | 35 (40) | 70 (70) | 7 (7) | 0.50× |" in text
    assert "| prompt of 32 | 40 (60) | 70 (80) | 140 (140) | 14 (14) | 0.50× |" in text
    assert "up to 2 % of the cores" in text and "2026-01-02, commit abc" in text
