import sys, os, time, torch, triton, triton.language as tl
@triton.jit
def add_kernel(x_ptr, y_ptr, o_ptr, n, BLOCK: tl.constexpr):
    pid = tl.program_id(0)
    offs = pid * BLOCK + tl.arange(0, BLOCK)
    x = tl.load(x_ptr + offs * 1000003)
    y = tl.load(y_ptr + offs)
    tl.store(o_ptr + offs, x + y)
def embed():
    e = torch.nn.Embedding(100, 16).cuda()
    idx = torch.randint(0, 100, (4, 8), device="cuda"); idx[2, 3] = 100
    return e(idx).sum()
def tri():
    a = torch.randn(1 << 16, device="cuda"); b = torch.randn_like(a); o = torch.empty_like(a)
    for _ in range(3): torch.relu(a)
    add_kernel[(64,)](a, b, o, a.numel(), BLOCK=1024)
    return o.sum()
case = sys.argv[1]
t = time.time()
try:
    r = {"embed": embed, "tri": tri}[case]()
    for _ in range(10): torch.relu(torch.randn(10, device="cuda"))
    print(r.item())
except Exception as ex:
    print(type(ex).__name__, str(ex)[:1200])
print("elapsed", time.time() - t)
