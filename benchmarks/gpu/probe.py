"""First look at the device: environment, correctness of the first kernels, times of their variants."""
import hashlib, importlib, json, os, platform, shutil, subprocess, sys, sysconfig, time, traceback
from pathlib import Path
from types import SimpleNamespace

ROOT = Path(__file__).resolve().parents[2]
sys.path[:0] = [str(ROOT / "src"), str(ROOT / "tests" / "gpu")]
import numpy as np
import cupy
from evenbins.cuda import _partition as part
from evenbins.cuda._kernels import compiled, launch_per_key
from cases import CORES, integers, strings

RAW = str(ROOT / "benchmarks" / "gpu" / "raw.cuh")
DTYPES = ("uint64", "int64", "int32", "uint8")
U64 = "Integers<uint64_t>"


def section(f):
    print(f"== {f.__name__}", flush=True)
    t = time.time()
    try:
        f()
    except Exception:
        traceback.print_exc()
    print(f"   ({time.time() - t:.1f} s)", flush=True)


def key_hash(seed):
    out = cupy.empty(4, np.uint64)
    compiled("keys.cuh", "make_key_hash")((1,), (1,), (np.uint64(seed), out))
    return out


def keys_of(array):
    a = cupy.asarray(array)
    names = {"u": "uint", "i": "int"}
    return SimpleNamespace(data=a, more=np.uint64(0), n=a.size, type=f"Integers<{names[a.dtype.kind]}{8 * a.dtype.itemsize}_t>")


def string_keys(data, offsets):
    return SimpleNamespace(data=cupy.asarray(data), more=cupy.asarray(offsets), n=offsets.size - 1, type="Strings<int64_t>")


def environment():
    print(platform.python_version(), np.__version__, cupy.__version__, "nvrtc", cupy.cuda.nvrtc.getVersion(), "runtime", cupy.cuda.runtime.runtimeGetVersion(), "driver", cupy.cuda.runtime.driverGetVersion())
    a = cupy.cuda.Device().attributes
    print("SMs", a["MultiProcessorCount"], "L2", a["L2CacheSize"], "smem optin", a["MaxSharedMemoryPerBlockOptin"], "clock", a["ClockRate"])
    for m in "torch jax scipy click rich pytest hypothesis xdist nanobind scikit_build_core pyarrow".split():
        try:
            print(m, getattr(importlib.import_module(m), "__version__", "?"), end="; ")
        except Exception as e:
            print(m, "MISSING", type(e).__name__, end="; ")
    print()
    print("Python.h", os.path.exists(os.path.join(sysconfig.get_paths()["include"], "Python.h")), sysconfig.get_paths()["include"])
    for p in "cmake ninja g++ c++ nvcc compute-sanitizer ncu git make".split():
        print(p, shutil.which(p), end="; ")
    print()
    print(subprocess.run("g++ --version | head -1; cmake --version | head -1; nproc; free -g | head -2", shell=True, capture_output=True, text=True).stdout)


def build():
    nanobind = ROOT / "nanobind_src" / "nanobind"
    if not nanobind.is_dir():
        print("no nanobind carried")
        return
    out = ROOT / "build" / "device"
    t = time.time()
    r = subprocess.run(
        f"cmake -S {ROOT} -B {out} -DSKBUILD=ON -Dnanobind_DIR={nanobind}/cmake -DPython_EXECUTABLE={sys.executable} -DCMAKE_BUILD_TYPE=Release -DEVENBINS_OPTIMISE=-O2 "
        f"&& cmake --build {out} -j 16 --target _core && cp {out}/_core*.so {ROOT}/src/evenbins/",
        shell=True, capture_output=True, text=True, timeout=240)
    print("build rc", r.returncode, f"{time.time() - t:.0f} s")
    if r.returncode:
        print(r.stdout[-1500:], r.stderr[-1500:])
        return
    r = subprocess.run([sys.executable, "-c", "import evenbins; from evenbins import BlockedBloomFilter as B; f=B(1000,fpr=1e-3); f.add_many(range(10)); print(f, 3 in f)"], env={**os.environ, "PYTHONPATH": str(ROOT / "src")}, capture_output=True, text=True)
    print("import rc", r.returncode, r.stdout, r.stderr[-800:])


def sha(a):
    return hashlib.sha256(cupy.asnumpy(a).tobytes()).hexdigest()[:16]


def correctness():
    want = json.loads((ROOT / "tests" / "gpu" / "expected.json").read_text())
    data, offsets = strings(20_011, 300)
    for name, (kind, _, seed, _, core) in CORES.items():
        if kind == 2:
            blocks, bits, hashes = core
            log = 9 if bits == 512 else 8
            new = lambda: cupy.zeros(blocks * bits // 64, np.uint64)
            def contains(words, k, depth=1):
                out = cupy.full(k.n, 7, np.uint8)
                launch_per_key(compiled("blocked.cuh", f"blocked_contains<{log},{hashes},{k.type},{depth}>"), k.n, (words, np.uint64(blocks), k.data, k.more, h, np.uint64(k.n), out))
                return out
            def add(words, k):
                launch_per_key(compiled("blocked.cuh", f"blocked_add<{log},{hashes},{k.type}>"), k.n, (words, np.uint64(blocks), k.data, k.more, h, np.uint64(k.n)))
            def add_by_regions(words, k):
                part.add(part.Blocks(words, blocks, log, hashes), k, h)
            def add_new(words, k, out):
                part.add_new(part.Blocks(words, blocks, log, hashes), k, h, out)
        elif kind == 1:
            bits, hashes = core
            new = lambda: cupy.zeros((bits + 63) // 64, np.uint64)
            def contains(words, k, queued=""):
                out = cupy.full(k.n, 7, np.uint8)
                launch_per_key(compiled("standard.cuh", f"standard_contains{queued}<{k.type}>"), k.n, (words, np.uint64(bits), np.uint32(hashes), k.data, k.more, h, np.uint64(k.n), out))
                return out
            def add(words, k):
                launch_per_key(compiled("standard.cuh", f"standard_add<{k.type}>"), k.n, (words, np.uint64(bits), np.uint32(hashes), k.data, k.more, h, np.uint64(k.n)))
            add_by_regions = add_new = None
        else:
            continue
        h = key_hash(seed)
        good, bad = 0, []
        def check(label, got, row):
            nonlocal good
            if got == want[name][row]: good += 1
            else: bad.append(label)
        for dtype in DTYPES:
            k, probe = keys_of(integers(100_003, dtype)), keys_of(integers(200_001, dtype))
            words = new(); add(words, k)
            check(f"add {dtype}", sha(words), f"add {dtype}")
            if add_by_regions:
                words = new(); add_by_regions(words, k)
                check(f"add by regions {dtype}", sha(words), f"add {dtype}")
            check(f"contains {dtype}", sha(contains(words, probe)), f"contains {dtype}")
            check(f"contains 2 {dtype}", sha(contains(words, probe, 2 if kind == 2 else "_queued")), f"contains {dtype}")
        k = string_keys(data, offsets[:10_001]); words = new(); add(words, k)
        check("add strings", sha(words), "add strings")
        check("contains strings", sha(contains(words, string_keys(data, offsets))), "contains strings")
        if add_new:
            words = new(); outs = []
            for n in (1, 33, 100_003):
                k = keys_of(integers(n, "uint64", repeats=True)); out = cupy.full(n, 7, np.uint8)
                add_new(words, k, out); outs.append(out)
            check("add_new", sha(cupy.concatenate(outs)), "add_new"); check("add_new bytes", sha(words), "add_new bytes")
        print(name, "good", good, "bad", bad)


def timed(f, n, rounds=5):
    f()
    best = []
    for _ in range(rounds):
        a, b = cupy.cuda.Event(), cupy.cuda.Event()
        a.record(); f(); b.record(); b.synchronize()
        best.append(cupy.cuda.get_elapsed_time(a, b))
    return n / np.median(best) / 1e6  # G/s


def report(label, f, n, rounds=5):
    try:
        print(f"{label:60s} {timed(f, n, rounds):8.2f} G/s", flush=True)
    except Exception as e:
        print(label, "FAILED", type(e).__name__, str(e)[:300], flush=True)


def random_keys(n):
    a = cupy.arange(n, dtype=np.uint64)
    a *= np.uint64(0x9E3779B97F4A7C15)
    return a


def queries():
    n = 1 << 28
    keys = random_keys(n); out = cupy.empty(n, np.uint8); h = key_hash(0)
    for size in (32 << 20, 256 << 20, 4 << 30, 32 << 30):
        blocks = size // 64
        words = cupy.empty(size // 8, np.uint64); words.fill(0x5A5A5A5AA5A5A5A5)
        fill = min(n, blocks * 32)
        def go(name, text="blocked.cuh", grid=None):
            k = compiled(text, name)
            def f():
                launch_per_key(k, n, (words, np.uint64(blocks), keys, np.uint64(0), h, np.uint64(n), out))
            return f
        print(f"-- {size >> 20} MiB")
        for d in (1, 2):
            report(f"raw lines depth {d}", go(f"raw_lines<9,{U64},{d}>", RAW), n)
            report(f"contains staged, own key, depth {d}", go(f"blocked_contains<9,10,{U64},{d}>"), n)
        report("contains 1 thread per key", go(f"contains_by_thread<9,10,{U64}>", RAW), n)
        report("contains by quarters", go(f"contains_by_quarters<10,{U64}>", RAW), n)
        k = compiled("blocked.cuh", f"blocked_contains<9,10,{U64},1>")
        for wide in (4, 16, 64):
            report(f"contains staged, {wide} x grid", lambda: k((132 * 8 * wide,), (256,), (words, np.uint64(blocks), keys, np.uint64(0), h, np.uint64(n), out)), n)
        del words
        cupy.get_default_memory_pool().free_all_blocks()


def adds():
    n = 1 << 28
    keys = random_keys(n); h = key_hash(0)
    for size in (32 << 20, 4 << 30):
        blocks = size // 64
        words = cupy.zeros(size // 8, np.uint64)
        table = part.Blocks(words, blocks, 9, 10)
        k = SimpleNamespace(data=keys, more=np.uint64(0), n=n, type=U64)
        print(f"-- {size >> 20} MiB, {n} keys")
        args = (words, np.uint64(blocks), keys, np.uint64(0), h, np.uint64(n))
        report("add by atomics", lambda: launch_per_key(compiled("blocked.cuh", f"blocked_add<9,10,{U64}>"), n, args), n)
        report("add by bulk reduction", lambda: launch_per_key(compiled(RAW, f"add_by_bulk<10,{U64}>"), n, args), n)
        report("add by regions", lambda: part.add(table, k, h), n)
        report("  scatter alone", lambda: part.scatter(table, k, h, exact=False), n)
        found = part.scatter(table, k, h, exact=False)
        add_regions = compiled("partition.cuh", "add_regions<9,10>")
        report("  regions alone", lambda: add_regions((found.number,), (512,), (words, np.uint64(blocks), found.starts, found.cursors, found.ends, found.digests), shared_mem=65536), n)
        full = found.ends - found.starts
        used = cupy.minimum(found.cursors, found.ends) - found.starts
        print("  overflowed", n - int(used.astype(np.uint64).sum()), "fill of regions", float(used.mean() / full.mean()))
        del found, full, used
        report("  scatter alone, exact", lambda: part.scatter(table, k, h, exact=True), n)
        out = cupy.empty(n, np.uint8)
        def fresh():
            words.fill(0); part.add_new(table, k, h, out)
        report("add_new by regions, into an empty filter", fresh, n, 3)
        print("  new", int(out.sum(dtype=np.uint64)))
        report("add_new by regions, all present", lambda: part.add_new(table, k, h, out), n, 3)
        print("  new", int(out.sum(dtype=np.uint64)))
        del words, out, table
        cupy.get_default_memory_pool().free_all_blocks()


def standard():
    n = 1 << 26
    keys = random_keys(n); h = key_hash(0); out = cupy.empty(n, np.uint8)
    size = 4 << 30
    bits = size * 8 - 7
    words = cupy.empty(size // 8, np.uint64)
    words[:] = cupy.arange(size // 8, dtype=np.uint64) * np.uint64(0x9E3779B97F4A7C15)  # half of the bits, about
    words ^= words >> np.uint64(31)
    words *= np.uint64(0xBF58476D1CE4E5B9)
    def args(*more):
        return (words, np.uint64(bits), *more, keys, np.uint64(0), h, np.uint64(n), out)
    for r in (1, 4, 10):
        k = compiled(RAW, f"raw_sectors<{U64},{r}>")
        report(f"raw sectors, {r} per key: sectors", lambda: launch_per_key(k, n, args()), n * r)
    for q in ("", "_queued"):
        k = compiled("standard.cuh", f"standard_contains{q}<{U64}>")
        report(f"absent{q} keys", lambda: launch_per_key(k, n, args(np.uint32(10))), n)
    k = compiled("standard.cuh", f"standard_add<{U64}>")
    report("add", lambda: launch_per_key(k, n, (words, np.uint64(bits), np.uint32(10), keys, np.uint64(0), h, np.uint64(n))), n)
    for q in ("", "_queued"):
        k = compiled("standard.cuh", f"standard_contains{q}<{U64}>")
        report(f"present{q} keys", lambda: launch_per_key(k, n, args(np.uint32(10))), n)
        print("  found", int(out.sum(dtype=np.uint64)), "of", n)


def text_keys():
    n = 1 << 27
    data = cupy.random.randint(0, 256, n * 16, dtype=np.uint8)
    h = key_hash(0); out = cupy.empty(n, np.uint8)
    size = 4 << 30
    words = cupy.zeros(size // 8, np.uint64)
    for dtype, t in ((np.int32, "int32_t"), (np.int64, "int64_t")):
        offsets = (cupy.arange(n + 1, dtype=np.int64) * 16).astype(dtype) if dtype == np.int64 else (cupy.arange(n // 2 + 1, dtype=np.int64) * 16).astype(dtype)
        m = offsets.size - 1
        k = compiled("blocked.cuh", f"blocked_contains<9,10,Strings<{t}>,1>")
        report(f"16-byte strings, {t}, contains", lambda: launch_per_key(k, m, (words, np.uint64(size // 64), data, offsets, h, np.uint64(m), out)), m)
        d = compiled("keys.cuh", f"make_digests<Strings<{t}>>")
        digests = cupy.empty(m, np.uint64)
        report(f"16-byte strings, {t}, digests alone", lambda: launch_per_key(d, m, (data, offsets, h, np.uint64(m), digests)), m)
        del digests


def copies():
    import cupyx
    n = 1 << 27
    host = cupyx.empty_pinned(n, np.uint64); host[:] = np.arange(n, dtype=np.uint64)
    answers = cupyx.empty_pinned(n, np.uint8)
    size = 4 << 30
    words = cupy.zeros(size // 8, np.uint64); h = key_hash(0)
    k = compiled("blocked.cuh", f"blocked_contains<9,10,{U64},1>")
    whole = cupy.empty(n, np.uint64)
    report("copy to the device alone, 8-byte keys", lambda: whole.set(host), n, 3)
    del whole
    for piece in (1 << 20, 1 << 22, 1 << 24):
        for lanes in (2, 3):
            streams = [cupy.cuda.Stream(non_blocking=True) for _ in range(lanes)]
            bufs = [(cupy.empty(piece, np.uint64), cupy.empty(piece, np.uint8)) for _ in range(lanes)]
            def run():
                for j, i in enumerate(range(0, n, piece)):
                    s = streams[j % lanes]; ks, outs = bufs[j % lanes]
                    with s:
                        ks.set(host[i:i + piece], stream=s)
                        k((132 * 8,), (256,), (words, np.uint64(size // 64), ks, np.uint64(0), h, np.uint64(piece), outs))
                        outs.get(out=answers[i:i + piece], stream=s, blocking=False)
                for s in streams: s.synchronize()
            run()
            t = time.perf_counter(); run(); t = time.perf_counter() - t
            print(f"pinned stream, pieces of {piece}, {lanes} lanes: {n / t / 1e9:.2f} G/s", flush=True)
    pageable = np.arange(n, dtype=np.uint64); staging = [cupyx.empty_pinned(1 << 22, np.uint64) for _ in range(2)]
    t = time.perf_counter(); np.copyto(host, pageable); t = time.perf_counter() - t
    print(f"host memcpy, one thread: {n / t / 1e9:.2f} G keys/s")
    from concurrent.futures import ThreadPoolExecutor
    for w in (2, 4, 8):
        with ThreadPoolExecutor(w) as pool:
            c = n // w
            t = time.perf_counter(); list(pool.map(lambda i: np.copyto(host[i * c:(i + 1) * c], pageable[i * c:(i + 1) * c]), range(w))); t = time.perf_counter() - t
            print(f"host memcpy, {w} threads: {n / t / 1e9:.2f} G keys/s")


def interfaces():
    import torch
    t = torch.arange(10, device="cuda")
    print("torch cai", hasattr(t, "__cuda_array_interface__"), "dlpack", hasattr(t, "__dlpack__"), t.__dlpack_device__())
    c = cupy.from_dlpack(t); print(c.dtype, c.data.ptr == t.data_ptr())
    print("torch bool from cupy", torch.from_dlpack(cupy.zeros(3, cupy.bool_)).dtype)
    try:
        u = torch.zeros(3, dtype=torch.uint64, device="cuda"); print("uint64", cupy.from_dlpack(u).dtype)
    except Exception as e: print("uint64 torch", e)
    print("streams", torch.cuda.current_stream().cuda_stream, cupy.cuda.get_current_stream().ptr)
    try:
        os.environ["XLA_PYTHON_CLIENT_PREALLOCATE"] = "false"
        import jax, jax.numpy as jnp
        j = jnp.arange(10); print("jax", j.dtype, j.devices(), hasattr(j, "__cuda_array_interface__"), hasattr(j, "__dlpack__"))
        c = cupy.from_dlpack(j); print(c.dtype); print(type(jax.dlpack.from_dlpack(cupy.zeros(3, cupy.bool_))))
    except Exception as e: print("jax", type(e).__name__, str(e)[:300])


for f in (environment, correctness, queries, adds, standard, text_keys, copies, interfaces, build):
    section(f)
