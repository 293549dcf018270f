"""More programs that train a model of their own: views, attention by hand, inheritance, several inputs and outputs."""

from __future__ import annotations

from tests.tracer.own_models_as_text import GREY, MASKS, ROWS, SENTENCES, SERIES, TOKENS, program

MORE: dict[str, str] = {}

MORE["vit"] = program(
    """
def exists(value):
    return value is not None

class Attention(nn.Module):
    def __init__(self, dim, heads=4, dim_head=8, dropout=0.):
        super().__init__()
        inner = dim_head * heads
        project_out = not (heads == 1 and dim_head == dim)
        self.heads = heads
        self.scale = dim_head ** -0.5
        self.norm = nn.LayerNorm(dim)
        self.attend = nn.Softmax(dim=-1)
        self.to_qkv = nn.Linear(dim, inner * 3, bias=False)
        self.to_out = nn.Sequential(nn.Linear(inner, dim), nn.Dropout(dropout)) if project_out else nn.Identity()

    def forward(self, x):
        b, n, _ = x.shape
        x = self.norm(x)
        qkv = self.to_qkv(x).chunk(3, dim=-1)
        q, k, v = map(lambda t: t.view(b, n, self.heads, -1).permute(0, 2, 1, 3), qkv)
        dots = torch.matmul(q, k.transpose(-1, -2)) * self.scale
        attn = self.attend(dots)
        out = torch.einsum("bhij,bhjd->bhid", attn, v)
        out = out.permute(0, 2, 1, 3).reshape(b, n, -1)
        return self.to_out(out)

class ViT(nn.Module):
    def __init__(self, *, image_size, patch_size, num_classes, dim, depth, pool="cls"):
        super().__init__()
        assert image_size % patch_size == 0, "image must be divisible by the patch size"
        num_patches = (image_size // patch_size) ** 2
        self.patch = nn.Conv2d(3, dim, kernel_size=patch_size, stride=patch_size)
        self.pos_embedding = nn.Parameter(torch.randn(1, num_patches + 1, dim))
        self.cls_token = nn.Parameter(torch.zeros(1, 1, dim))
        self.layers = nn.ModuleList([])
        for _ in range(depth):
            self.layers.append(nn.ModuleList([
                Attention(dim),
                nn.Sequential(nn.LayerNorm(dim), nn.Linear(dim, dim * 2), nn.GELU(), nn.Linear(dim * 2, dim)),
            ]))
        self.pool = pool
        self.head = nn.Linear(dim, num_classes)

    def forward(self, img):
        x = self.patch(img).flatten(2).transpose(1, 2)
        cls = self.cls_token.expand(x.shape[0], -1, -1)
        x = torch.cat((cls, x), dim=1)
        x += self.pos_embedding[:, : x.shape[1]]
        for attn, ff in self.layers:
            x = attn(x) + x
            x = ff(x) + x
        x = x.mean(dim=1) if self.pool == "mean" else x[:, 0]
        return self.head(x)
""",
    "ViT(image_size=16, patch_size=4, num_classes=10, dim=32, depth=2)",
)

MORE["masked_attention"] = program(
    """
class Head(nn.Module):
    def __init__(self, head_size, n_embd, block_size):
        super().__init__()
        self.key = nn.Linear(n_embd, head_size, bias=False)
        self.query = nn.Linear(n_embd, head_size, bias=False)
        self.value = nn.Linear(n_embd, head_size, bias=False)
        self.register_buffer("tril", torch.tril(torch.ones(block_size, block_size)))
        self.dropout = nn.Dropout(0.1)

    def forward(self, x):
        B, T, C = x.shape
        k, q = self.key(x), self.query(x)
        wei = q @ k.transpose(-2, -1) * k.shape[-1] ** -0.5
        wei = wei.masked_fill(self.tril[:T, :T] == 0, float("-inf"))
        wei = self.dropout(F.softmax(wei, dim=-1))
        return wei @ self.value(x)

class Bigram(nn.Module):
    def __init__(self, vocab=100, n_embd=32, heads=4, block_size=24):
        super().__init__()
        self.token = nn.Embedding(vocab, n_embd)
        self.position = nn.Embedding(block_size, n_embd)
        self.heads = nn.ModuleList(Head(n_embd // heads, n_embd, block_size) for _ in range(heads))
        self.lm_head = nn.Linear(n_embd, vocab)

    def forward(self, idx, targets=None):
        B, T = idx.shape
        x = self.token(idx) + self.position(torch.arange(T, device=idx.device))
        x = torch.cat([h(x) for h in self.heads], dim=-1)
        logits = self.lm_head(x)
        if targets is None:
            loss = None
        else:
            B, T, C = logits.shape
            loss = F.cross_entropy(logits.view(B * T, C), targets.view(B * T))
        return logits, loss
""",
    "Bigram()",
    TOKENS,
    step="_, loss = model(x, y)",
)

MORE["autoencoder"] = program(
    """
class VAE(nn.Module):
    def __init__(self, latent=8):
        super().__init__()
        self.fc1 = nn.Linear(784, 64)
        self.fc21 = nn.Linear(64, latent)
        self.fc22 = nn.Linear(64, latent)
        self.fc3 = nn.Linear(latent, 64)
        self.fc4 = nn.Linear(64, 784)

    def encode(self, x):
        h1 = F.relu(self.fc1(x))
        return self.fc21(h1), self.fc22(h1)

    def reparameterize(self, mu, logvar):
        std = torch.exp(0.5 * logvar)
        eps = torch.randn_like(std)
        return mu + eps * std

    def decode(self, z):
        h3 = F.relu(self.fc3(z))
        return torch.sigmoid(self.fc4(h3))

    def forward(self, x):
        mu, logvar = self.encode(x.view(-1, 784))
        z = self.reparameterize(mu, logvar)
        return self.decode(z), mu, logvar

def loss_function(recon_x, x, mu, logvar):
    BCE = F.binary_cross_entropy(recon_x, x.view(-1, 784), reduction="sum")
    KLD = -0.5 * torch.sum(1 + logvar - mu.pow(2) - logvar.exp())
    return BCE + KLD
""",
    "VAE()",
    GREY,
    "None",
    step="recon, mu, logvar = model(x)\n            loss = loss_function(recon, x, mu, logvar)",
)

MORE["densenet"] = program(
    """
class Bottleneck(nn.Module):
    def __init__(self, cin, growth):
        super().__init__()
        self.add_module("norm1", nn.BatchNorm2d(cin))
        self.add_module("conv1", nn.Conv2d(cin, 4 * growth, 1, bias=False))
        self.bn2 = nn.BatchNorm2d(4 * growth)
        self.conv2 = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)

    def forward(self, x):
        out = self.conv1(F.relu(self.norm1(x)))
        out = self.conv2(F.relu(self.bn2(out)))
        return torch.cat([out, x], 1)

class DenseNet(nn.Module):
    def __init__(self, growth=4, blocks=(2, 3)):
        super().__init__()
        channels = 2 * growth
        features = OrderedDict([("conv0", nn.Conv2d(3, channels, 3, padding=1))])
        for i, n in enumerate(blocks):
            for j in range(n):
                features[f"dense{i}_{j}"] = Bottleneck(channels, growth)
                channels += growth
            if i != len(blocks) - 1:
                features["trans%d" % i if False else f"trans{i}"] = nn.Sequential(
                    nn.Conv2d(channels, channels // 2, 1), nn.AvgPool2d(2))
                channels = channels // 2
        self.features = nn.Sequential(features)
        self.linear = nn.Linear(channels, 10)

    def forward(self, x):
        out = F.adaptive_avg_pool2d(F.relu(self.features(x), inplace=True), (1, 1))
        return self.linear(torch.flatten(out, 1))
""",
    "DenseNet()",
)

MORE["squeeze_excite"] = program(
    """
class Swish(nn.Module):
    def forward(self, x):
        return x * torch.sigmoid(x)

class SE(nn.Module):
    def __init__(self, c, r=4):
        super().__init__()
        self.fc = nn.Sequential(
            nn.AdaptiveAvgPool2d(1), nn.Conv2d(c, c // r, 1), Swish(), nn.Conv2d(c // r, c, 1), nn.Sigmoid())
    def forward(self, x):
        return x * self.fc(x)

class MBConv(nn.Module):
    def __init__(self, cin, cout, expand, stride):
        super().__init__()
        mid = cin * expand
        self.use_res = stride == 1 and cin == cout
        layers = []
        if expand != 1:
            layers.extend([nn.Conv2d(cin, mid, 1, bias=False), nn.BatchNorm2d(mid), Swish()])
        layers.extend([nn.Conv2d(mid, mid, 3, stride, 1, groups=mid, bias=False), nn.BatchNorm2d(mid), Swish(), SE(mid),
                       nn.Conv2d(mid, cout, 1, bias=False), nn.BatchNorm2d(cout)])
        self.conv = nn.Sequential(*layers)
    def forward(self, x):
        return x + self.conv(x) if self.use_res else self.conv(x)

class Net(nn.Module):
    settings = [[1, 8, 1, 1], [4, 12, 2, 2]]
    def __init__(self, num_classes=10):
        super().__init__()
        features = [nn.Conv2d(3, 8, 3, 1, 1)]
        cin = 8
        for t, c, n, s in self.settings:
            for i in range(n):
                features.append(MBConv(cin, c, t, s if i == 0 else 1))
                cin = c
        self.features = nn.Sequential(*features)
        self.head = nn.Linear(cin, num_classes)
    def forward(self, x):
        return self.head(self.features(x).mean([2, 3]))
""",
    "Net()",
    optimizer="RMSprop",
)

MORE["inheritance"] = program(
    """
class Base(nn.Module):
    def __init__(self, width, norm_layer=nn.BatchNorm2d, act=nn.ReLU):
        super().__init__()
        self.width = width
        self.stem = nn.Sequential(nn.Conv2d(3, width, 3, padding=1), norm_layer(width), act())
        self.body = self.make_body()

    def make_body(self):
        raise NotImplementedError

    @property
    def features(self):
        return self.width * 2

    @staticmethod
    def pool(x):
        return x.amax(dim=(2, 3))

    def forward(self, x):
        return self.head(self.pool(self.body(self.stem(x))))

class Deep(Base):
    def __init__(self, width=8, classes=10, **kwargs):
        super().__init__(width, **kwargs)
        self.head = nn.Linear(self.features, classes)

    def make_body(self):
        return nn.Sequential(nn.Conv2d(self.width, self.features, 3, 2, 1), nn.LeakyReLU(0.1, inplace=True))
""",
    "Deep(width=8, act=partial(nn.LeakyReLU, 0.2))",
)

MORE["registry"] = program(
    """
class Wide(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.net = nn.Sequential(nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d))
    def forward(self, x):
        return x + self.net(x)

class Narrow(Wide):
    def __init__(self, d):
        super().__init__(d)
        self.net = nn.Linear(d, d)

BLOCKS = {"wide": Wide, "narrow": Narrow}
ACTIVATIONS = dict(relu=nn.ReLU, tanh=nn.Tanh)

class Net(nn.Module):
    def __init__(self, kind="wide", depth=3, d=16, activation="tanh"):
        super().__init__()
        self.inp = nn.Linear(12, d)
        self.blocks = nn.Sequential(*[BLOCKS[kind](d) for _ in range(depth)])
        self.act = ACTIVATIONS[activation]()
        self.out = nn.Linear(d, 3)
    def forward(self, x):
        return self.out(self.act(self.blocks(self.inp(x))))
""",
    'Net("wide", depth=2)',
    ROWS,
    step="pred = model(x)\n            loss = ((pred - y) ** 2).mean() + 0.1 * pred.abs().mean()",
)

MORE["two_heads"] = program(
    """
class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.trunk = nn.Sequential(nn.Conv2d(3, 8, 3, 2, 1), nn.GroupNorm(2, 8), nn.SiLU())
        self.cls = nn.Linear(8, 10)
        self.reg = nn.Linear(8, 1)
    def forward(self, x):
        h = self.trunk(x).mean(dim=(-1, -2))
        return {"cls": self.cls(h), "reg": self.reg(h).squeeze(-1)}
""",
    "Net()",
    step='out = model(x)\n            loss = criterion(out["cls"], y) + 0.5 * F.smooth_l1_loss(out["reg"], y.float())',
)

MORE["segment"] = program(
    """
class FPN(nn.Module):
    def __init__(self, classes=4):
        super().__init__()
        self.c1 = nn.Conv2d(3, 8, 3, 2, 1)
        self.c2 = nn.Conv2d(8, 16, 3, 2, 1)
        self.l1, self.l2 = nn.Conv2d(8, 8, 1), nn.Conv2d(16, 8, 1)
        self.out = nn.Conv2d(8, classes, 1)
    def forward(self, x):
        size = x.shape[-2:]
        f1 = F.relu(self.c1(x))
        f2 = F.relu(self.c2(f1))
        p = self.l1(f1) + F.interpolate(self.l2(f2), size=f1.shape[2:], mode="nearest")
        return F.interpolate(self.out(p), size=size, mode="bilinear", align_corners=False)

def dice(logits, target):
    prob = logits.softmax(1)
    onehot = F.one_hot(target, num_classes=logits.shape[1]).permute(0, 3, 1, 2).float()
    inter = (prob * onehot).sum(dim=(0, 2, 3))
    return 1 - (2 * inter / (prob + onehot).sum(dim=(0, 2, 3)).clamp(min=1e-6)).mean()
""",
    "FPN()",
    MASKS,
    step="out = model(x)\n            loss = criterion(out, y) + dice(out, y)",
)

MORE["tcn"] = program(
    """
class Chomp1d(nn.Module):
    def __init__(self, chomp_size):
        super(Chomp1d, self).__init__()
        self.chomp_size = chomp_size
    def forward(self, x):
        return x[:, :, :-self.chomp_size].contiguous()

class TemporalBlock(nn.Module):
    def __init__(self, n_in, n_out, kernel, dilation):
        super().__init__()
        self.conv = nn.Conv1d(n_in, n_out, kernel, padding=(kernel - 1) * dilation, dilation=dilation)
        self.net = nn.Sequential(self.conv, Chomp1d((kernel - 1) * dilation), nn.ReLU(), nn.Dropout(0.1))
        self.downsample = nn.Conv1d(n_in, n_out, 1) if n_in != n_out else None
    def forward(self, x):
        out = self.net(x)
        res = x if self.downsample is None else self.downsample(x)
        return F.relu(out + res)

class TCN(nn.Module):
    def __init__(self, inputs, channels):
        super().__init__()
        layers = []
        for i in range(len(channels)):
            layers += [TemporalBlock(inputs if i == 0 else channels[i - 1], channels[i], 3, 2 ** i)]
        self.network = nn.Sequential(*layers)
        self.linear = nn.Linear(channels[-1], 1)
    def forward(self, x):
        y = self.network(x.transpose(1, 2))
        return self.linear(y[:, :, -1])
""",
    "TCN(8, [16] * 3)",
    SERIES,
    "nn.HuberLoss()",
)

MORE["decoder"] = program(
    """
class Seq2Seq(nn.Module):
    def __init__(self, vocab=100, d=32):
        super().__init__()
        self.emb = nn.Embedding(vocab, d)
        self.transformer = nn.Transformer(d_model=d, nhead=4, num_encoder_layers=1, num_decoder_layers=2,
                                          dim_feedforward=64, batch_first=True)
        self.generator = nn.Linear(d, vocab)
    def forward(self, src, tgt):
        mask = nn.Transformer.generate_square_subsequent_mask(tgt.shape[1]).to(src.device)
        out = self.transformer(self.emb(src), self.emb(tgt), tgt_mask=mask)
        return self.generator(out)
""",
    "Seq2Seq()",
    TOKENS,
    step="logits = model(x, y[:, :-1])\n            "
    "loss = criterion(logits.reshape(-1, logits.shape[-1]), y[:, 1:].reshape(-1))",
)

MORE["checkpointed"] = program(
    """
from torch.utils.checkpoint import checkpoint

class Net(nn.Module):
    def __init__(self, d=16):
        super().__init__()
        self.inp = nn.Linear(12, d)
        self.blocks = nn.ModuleList([nn.Sequential(nn.Linear(d, 64), nn.ReLU(), nn.Linear(64, d)) for _ in range(3)])
        self.out = nn.Linear(d, 3)
    def forward(self, x):
        x = self.inp(x)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.out(x)
""",
    "Net()",
    ROWS,
    "nn.MSELoss()",
)

MORE["depthwise_stack"] = program(
    """
class ConvMixer(nn.Module):
    def __init__(self, dim, depth, kernel=5, patch=4, classes=10):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Conv2d(3, dim, kernel_size=patch, stride=patch), nn.GELU(), nn.BatchNorm2d(dim),
            *[nn.Sequential(
                Residual(nn.Sequential(
                    nn.Conv2d(dim, dim, kernel, groups=dim, padding="same"), nn.GELU(), nn.BatchNorm2d(dim))),
                nn.Conv2d(dim, dim, 1), nn.GELU(), nn.BatchNorm2d(dim)) for i in range(depth)],
            nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten(), nn.Linear(dim, classes))
    def forward(self, x):
        return self.layers(x)

class Residual(nn.Module):
    def __init__(self, fn):
        super().__init__()
        self.fn = fn
    def forward(self, x):
        return self.fn(x) + x
""",
    "ConvMixer(16, 2)",
)

MORE["norm_by_hand"] = program(
    """
class LayerNorm2d(nn.Module):
    def __init__(self, c, eps=1e-6):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(c))
        self.bias = nn.Parameter(torch.zeros(c))
        self.eps = eps
    def forward(self, x):
        u = x.mean(1, keepdim=True)
        s = (x - u).pow(2).mean(1, keepdim=True)
        x = (x - u) / torch.sqrt(s + self.eps)
        return self.weight[:, None, None] * x + self.bias[:, None, None]

class DropPath(nn.Module):
    def __init__(self, p=0.):
        super().__init__()
        self.p = p
    def forward(self, x):
        if self.p == 0. or not self.training:
            return x
        keep = 1 - self.p
        shape = (x.shape[0],) + (1,) * (x.ndim - 1)
        mask = keep + torch.rand(shape, dtype=x.dtype, device=x.device)
        mask.floor_()
        return x.div(keep) * mask

class Block(nn.Module):
    def __init__(self, dim, drop):
        super().__init__()
        self.dw = nn.Conv2d(dim, dim, 7, padding=3, groups=dim)
        self.norm = LayerNorm2d(dim)
        self.pw1, self.act, self.pw2 = nn.Conv2d(dim, 4 * dim, 1), nn.GELU(), nn.Conv2d(4 * dim, dim, 1)
        self.gamma = nn.Parameter(1e-6 * torch.ones((dim)), requires_grad=True)
        self.drop_path = DropPath(drop) if drop > 0. else nn.Identity()
    def forward(self, x):
        y = self.pw2(self.act(self.pw1(self.norm(self.dw(x)))))
        return x + self.drop_path(self.gamma.view(-1, 1, 1) * y)

class Net(nn.Module):
    def __init__(self, depth=3, dim=8):
        super().__init__()
        rates = [x.item() for x in torch.linspace(0, 0.1, depth)]
        self.stem = nn.Conv2d(3, dim, 2, 2)
        self.blocks = nn.Sequential(*[Block(dim, rates[i]) for i in range(depth)])
        self.head = nn.Linear(dim, 10)
    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean([-2, -1]))
""",
    "Net()",
    optimizer="AdamW",
)

MORE["metric"] = program(
    """
class Arc(nn.Module):
    def __init__(self, d, classes, s=30.0, m=0.5):
        super().__init__()
        self.weight = nn.Parameter(torch.FloatTensor(classes, d))
        nn.init.xavier_uniform_(self.weight)
        self.s, self.cos_m, self.sin_m = s, math.cos(m), math.sin(m)
    def forward(self, x, label):
        cosine = F.linear(F.normalize(x), F.normalize(self.weight))
        sine = torch.sqrt(1.0 - torch.pow(cosine, 2))
        phi = cosine * self.cos_m - sine * self.sin_m
        one_hot = torch.zeros(cosine.size(), device=x.device)
        one_hot.scatter_(1, label.view(-1, 1).long(), 1)
        return (one_hot * phi + (1.0 - one_hot) * cosine) * self.s

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), nn.PReLU(16), nn.AdaptiveAvgPool2d(1), nn.Flatten())
        self.arc = Arc(16, 10)
    def forward(self, x, y):
        return self.arc(self.body(x), y)
""",
    "Net()",
    step="loss = criterion(model(x, y), y)",
)

MORE["graph_like"] = program(
    """
class MessagePassing(nn.Module):
    def __init__(self, d):
        super().__init__()
        self.edge = nn.Linear(2 * d, d)
        self.node = nn.GRUCell(d, d)
    def forward(self, h):
        b, n, d = h.shape
        left = h.unsqueeze(2).expand(b, n, n, d)
        right = h.unsqueeze(1).expand(-1, n, -1, -1)
        m = torch.relu(self.edge(torch.cat([left, right], -1))).sum(2)
        return self.node(m.reshape(-1, d), h.reshape(-1, d)).view(b, n, d)

class Net(nn.Module):
    def __init__(self, d=8, steps=2):
        super().__init__()
        self.steps = steps
        self.mp = MessagePassing(d)
        self.out = nn.Linear(d, 1)
    def forward(self, x):
        for step in range(self.steps):
            x = self.mp(x)
        return self.out(x).mean(dim=1)
""",
    "Net()",
    SERIES,
    "nn.MSELoss()",
)

MORE["multihead"] = program(
    """
class Block(nn.Module):
    def __init__(self, d, heads):
        super().__init__()
        self.attn = nn.MultiheadAttention(d, heads, batch_first=True)
        self.n1, self.n2 = nn.LayerNorm(d), nn.LayerNorm(d)
        self.ff = nn.Sequential(nn.Linear(d, d * 4), nn.ReLU(), nn.Linear(d * 4, d))
    def forward(self, x, mask=None):
        a, _ = self.attn(x, x, x, attn_mask=mask)
        x = self.n1(x + a)
        return self.n2(x + self.ff(x))

class Net(nn.Module):
    def __init__(self, d=32, depth=2):
        super().__init__()
        self.emb = nn.Embedding(100, d)
        self.blocks = nn.ModuleList()
        for _ in range(depth):
            self.blocks.append(Block(d, 4))
        self.head = nn.Linear(d, 5)
    def forward(self, x):
        x = self.emb(x)
        for block in self.blocks:
            x = block(x)
        return self.head(x.max(dim=1)[0])
""",
    "Net()",
    SENTENCES,
)
