import torch

n = 1 << 22
side = torch.cuda.Stream()
total = torch.zeros((), dtype=torch.float64, device="cuda")
torch.cuda._sleep(1000)
torch.cuda.synchronize()


def consume_on_side():
    batch = torch.ones(n, device="cuda")
    side.wait_stream(torch.cuda.current_stream())
    batch.record_stream(side)
    with torch.cuda.stream(side):
        torch.cuda._sleep(20_000_000)
        total.add_(batch.sum(dtype=torch.float64))


consume_on_side()
workspace = torch.full((n,), 7.0, device="cuda")
torch.cuda.synchronize()
print(f"total {total.item():.0f}, expected {n}")
raise SystemExit(0 if total.item() == n else 1)
