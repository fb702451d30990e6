import sys, os, torch, pickle
from torch_cases_k import add_kernel
if os.environ.get("MEMHIST"):
    torch.cuda.memory._record_memory_history(max_entries=100000, stacks="python")
class Blk(torch.nn.Module):
    def __init__(s): super().__init__(); s.l = torch.nn.Linear(256, 256)
    def forward(s, x):
        y = torch.relu(s.l(x))
        o = torch.empty(1 << 16, device="cuda")
        add_kernel[(64,)](y.flatten(), x.flatten(), o, o.numel(), BLOCK=1024)
        return o
def main():
    m = Blk().cuda(); x = torch.randn(256, 256, device="cuda")
    for _ in range(3): torch.relu(x)
    z = m(x)
    for _ in range(20): z = z * 1.0001
    return z.sum().item()
if os.environ.get("PY_HOOK"):
    def hook(t, v, tb):
        print("excepthook", t.__name__, str(v)[:80])
        try:
            snap = torch.cuda.memory._snapshot(); pickle.dump(snap, open("/tmp/snap.pkl", "wb")); print("snapshot ok", len(snap["segments"]), len(snap["device_traces"][0]))
        except Exception as e: print("snapshot failed", e)
    sys.excepthook = hook
main()
