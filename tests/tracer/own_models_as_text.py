"""Programs that train a model of their own, of the kinds that people write. They were written before any was tried.

`PROGRAMS`: name -> text. Each makes `model` in `main`, and trains it in the loop there or in a function that it calls.
"""

from __future__ import annotations

HEAD = """
import math
from collections import OrderedDict
from functools import partial
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.utils.data import DataLoader, TensorDataset
"""

IMAGES = "TensorDataset(torch.randn(64, 3, 16, 16), torch.randint(0, 10, (64,)))"
GREY = "TensorDataset(torch.randn(64, 1, 28, 28), torch.randint(0, 10, (64,)))"
MASKS = "TensorDataset(torch.randn(64, 3, 32, 32), torch.randint(0, 4, (64, 32, 32)))"
TOKENS = "TensorDataset(torch.randint(0, 100, (64, 24)), torch.randint(0, 100, (64, 24)))"
SENTENCES = "TensorDataset(torch.randint(0, 100, (64, 24)), torch.randint(0, 5, (64,)))"
SERIES = "TensorDataset(torch.randn(64, 20, 8), torch.randn(64, 1))"
ROWS = "TensorDataset(torch.randn(64, 12), torch.randn(64, 3))"
CROSS = "nn.CrossEntropyLoss()"


def program(
    classes: str, model: str, data: str = IMAGES, loss: str = CROSS, step: str = "", optimizer: str = "Adam"
) -> str:
    """A whole program."""
    step = step or "out = model(x)\n            loss = criterion(out, y)"
    return f"""{HEAD}
{classes}

def main():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    data = {data}
    loader = DataLoader(data, batch_size=8, shuffle=True)
    model = {model}.to(device)
    criterion = {loss}
    optimizer = torch.optim.{optimizer}(model.parameters(), lr=1e-3)
    for epoch in range(3):
        model.train()
        for x, y in loader:
            x, y = x.to(device), y.to(device)
            optimizer.zero_grad()
            {step}
            loss.backward()
            optimizer.step()

if __name__ == "__main__":
    main()
"""


PROGRAMS: dict[str, str] = {}

PROGRAMS["mlp"] = program(
    """
class MLP(nn.Module):
    def __init__(self, inside, hidden, outside, depth=3):
        super().__init__()
        sizes = [inside] + [hidden] * depth
        self.layers = nn.ModuleList([nn.Linear(a, b) for a, b in zip(sizes[:-1], sizes[1:])])
        self.drop = nn.Dropout(0.2)
        self.head = nn.Linear(hidden, outside)

    def forward(self, x):
        for i, layer in enumerate(self.layers):
            x = F.relu(layer(x))
            if i < len(self.layers) - 1:
                x = self.drop(x)
        return self.head(x)
""",
    "MLP(12, 32, outside=3)",
    ROWS,
    "nn.MSELoss()",
)

PROGRAMS["lenet"] = program(
    """
class Net(nn.Module):
    def __init__(self):
        super(Net, self).__init__()
        self.conv1 = nn.Conv2d(1, 10, kernel_size=5)
        self.conv2 = nn.Conv2d(10, 20, kernel_size=5)
        self.conv2_drop = nn.Dropout2d()
        self.fc1 = nn.Linear(320, 50)
        self.fc2 = nn.Linear(50, 10)

    def forward(self, x):
        x = F.relu(F.max_pool2d(self.conv1(x), 2))
        x = F.relu(F.max_pool2d(self.conv2_drop(self.conv2(x)), 2))
        x = x.view(-1, 320)
        x = F.relu(self.fc1(x))
        x = F.dropout(x, training=self.training)
        x = self.fc2(x)
        return F.log_softmax(x, dim=1)
""",
    "Net()",
    GREY,
    step="loss = F.nll_loss(model(x), y)",
    optimizer="SGD",
)

PROGRAMS["resnet"] = program(
    """
def conv3x3(cin, cout, stride=1):
    return nn.Conv2d(cin, cout, kernel_size=3, stride=stride, padding=1, bias=False)

class BasicBlock(nn.Module):
    expansion = 1
    def __init__(self, cin, planes, stride=1, downsample=None):
        super().__init__()
        self.conv1 = conv3x3(cin, planes, stride)
        self.bn1 = nn.BatchNorm2d(planes)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = conv3x3(planes, planes)
        self.bn2 = nn.BatchNorm2d(planes)
        self.downsample = downsample

    def forward(self, x):
        identity = x
        out = self.conv1(x)
        out = self.bn1(out)
        out = self.relu(out)
        out = self.conv2(out)
        out = self.bn2(out)
        if self.downsample is not None:
            identity = self.downsample(x)
        out += identity
        return self.relu(out)

class ResNet(nn.Module):
    def __init__(self, block, layers, num_classes=10):
        super().__init__()
        self.inplanes = 8
        self.stem = nn.Sequential(conv3x3(3, 8), nn.BatchNorm2d(8), nn.ReLU(inplace=True))
        self.layer1 = self._make_layer(block, 8, layers[0])
        self.layer2 = self._make_layer(block, 16, layers[1], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(16 * block.expansion, num_classes)
        for m in self.modules():
            if isinstance(m, nn.Conv2d):
                nn.init.kaiming_normal_(m.weight, mode="fan_out", nonlinearity="relu")
            elif isinstance(m, (nn.BatchNorm2d, nn.GroupNorm)):
                nn.init.constant_(m.weight, 1)
                nn.init.constant_(m.bias, 0)

    def _make_layer(self, block, planes, blocks, stride=1):
        downsample = None
        if stride != 1 or self.inplanes != planes * block.expansion:
            downsample = nn.Sequential(
                nn.Conv2d(self.inplanes, planes * block.expansion, 1, stride, bias=False),
                nn.BatchNorm2d(planes * block.expansion))
        layers = [block(self.inplanes, planes, stride, downsample)]
        self.inplanes = planes * block.expansion
        for _ in range(1, blocks):
            layers.append(block(self.inplanes, planes))
        return nn.Sequential(*layers)

    def forward(self, x):
        x = self.stem(x)
        x = self.layer2(self.layer1(x))
        x = torch.flatten(self.avgpool(x), 1)
        return self.fc(x)
""",
    "ResNet(BasicBlock, [2, 2], num_classes=10)",
)

PROGRAMS["vgg"] = program(
    """
CFG = {"A": [8, "M", 16, "M"], "B": [8, 8, "M", 16, 16, "M"]}

class VGG(nn.Module):
    def __init__(self, name):
        super().__init__()
        self.features = self._make_layers(CFG[name])
        self.classifier = nn.Linear(16 * 4 * 4, 10)

    def forward(self, x):
        out = self.features(x)
        out = out.view(out.size(0), -1)
        return self.classifier(out)

    def _make_layers(self, cfg):
        layers = []
        channels = 3
        for x in cfg:
            if x == "M":
                layers += [nn.MaxPool2d(kernel_size=2, stride=2)]
            else:
                layers += [nn.Conv2d(channels, x, kernel_size=3, padding=1), nn.BatchNorm2d(x), nn.ReLU(inplace=True)]
                channels = x
        return nn.Sequential(*layers)
""",
    'VGG("B")',
)

PROGRAMS["unet"] = program(
    """
class DoubleConv(nn.Module):
    def __init__(self, cin, cout, mid=None):
        super().__init__()
        if not mid:
            mid = cout
        self.double_conv = nn.Sequential(
            nn.Conv2d(cin, mid, 3, padding=1, bias=False), nn.BatchNorm2d(mid), nn.ReLU(inplace=True),
            nn.Conv2d(mid, cout, 3, padding=1, bias=False), nn.BatchNorm2d(cout), nn.ReLU(inplace=True))

    def forward(self, x):
        return self.double_conv(x)

class Down(nn.Module):
    def __init__(self, cin, cout):
        super().__init__()
        self.maxpool_conv = nn.Sequential(nn.MaxPool2d(2), DoubleConv(cin, cout))

    def forward(self, x):
        return self.maxpool_conv(x)

class Up(nn.Module):
    def __init__(self, cin, cout, bilinear=True):
        super().__init__()
        if bilinear:
            self.up = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=True)
            self.conv = DoubleConv(cin, cout, cin // 2)
        else:
            self.up = nn.ConvTranspose2d(cin, cin // 2, kernel_size=2, stride=2)
            self.conv = DoubleConv(cin, cout)

    def forward(self, x1, x2):
        x1 = self.up(x1)
        diffY = x2.size()[2] - x1.size()[2]
        diffX = x2.size()[3] - x1.size()[3]
        x1 = F.pad(x1, [diffX // 2, diffX - diffX // 2, diffY // 2, diffY - diffY // 2])
        x = torch.cat([x2, x1], dim=1)
        return self.conv(x)

class UNet(nn.Module):
    def __init__(self, n_channels, n_classes, bilinear=False):
        super().__init__()
        factor = 2 if bilinear else 1
        self.inc = DoubleConv(n_channels, 8)
        self.down1 = Down(8, 16)
        self.down2 = Down(16, 32 // factor)
        self.up1 = Up(32, 16 // factor, bilinear)
        self.up2 = Up(16, 8, bilinear)
        self.outc = nn.Conv2d(8, n_classes, kernel_size=1)

    def forward(self, x):
        x1 = self.inc(x)
        x2 = self.down1(x1)
        x3 = self.down2(x2)
        x = self.up1(x3, x2)
        x = self.up2(x, x1)
        return self.outc(x)
""",
    "UNet(3, 4, bilinear=True)",
    MASKS,
)

PROGRAMS["gpt"] = program(
    """
from dataclasses import dataclass

class CausalSelfAttention(nn.Module):
    def __init__(self, config):
        super().__init__()
        assert config.n_embd % config.n_head == 0
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd, bias=config.bias)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd, bias=config.bias)
        self.n_head = config.n_head
        self.n_embd = config.n_embd
        self.dropout = config.dropout
        self.flash = hasattr(torch.nn.functional, "scaled_dot_product_attention")

    def forward(self, x):
        B, T, C = x.size()
        q, k, v = self.c_attn(x).split(self.n_embd, dim=2)
        k = k.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        q = q.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        v = v.view(B, T, self.n_head, C // self.n_head).transpose(1, 2)
        y = torch.nn.functional.scaled_dot_product_attention(
            q, k, v, attn_mask=None, dropout_p=self.dropout if self.training else 0, is_causal=True)
        y = y.transpose(1, 2).contiguous().view(B, T, C)
        return self.c_proj(y)

class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.ln_1 = nn.LayerNorm(config.n_embd)
        self.attn = CausalSelfAttention(config)
        self.ln_2 = nn.LayerNorm(config.n_embd)
        self.mlp = nn.ModuleDict(dict(
            c_fc=nn.Linear(config.n_embd, 4 * config.n_embd),
            c_proj=nn.Linear(4 * config.n_embd, config.n_embd),
            act=nn.GELU(),
        ))
        m = self.mlp
        self.mlpf = lambda x: m.c_proj(m.act(m.c_fc(x)))

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x = x + self.mlpf(self.ln_2(x))
        return x

@dataclass
class GPTConfig:
    block_size: int = 24
    vocab_size: int = 100
    n_layer: int = 2
    n_head: int = 4
    n_embd: int = 32
    dropout: float = 0.1
    bias: bool = True

class GPT(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.config = config
        self.transformer = nn.ModuleDict(dict(
            wte=nn.Embedding(config.vocab_size, config.n_embd),
            wpe=nn.Embedding(config.block_size, config.n_embd),
            h=nn.ModuleList([Block(config) for _ in range(config.n_layer)]),
            ln_f=nn.LayerNorm(config.n_embd),
        ))
        self.lm_head = nn.Linear(config.n_embd, config.vocab_size, bias=False)
        self.transformer.wte.weight = self.lm_head.weight
        self.apply(self._init_weights)
        for pn, p in self.named_parameters():
            if pn.endswith("c_proj.weight"):
                torch.nn.init.normal_(p, mean=0.0, std=0.02 / math.sqrt(2 * config.n_layer))

    def _init_weights(self, module):
        if isinstance(module, nn.Linear):
            torch.nn.init.normal_(module.weight, mean=0.0, std=0.02)
            if module.bias is not None:
                torch.nn.init.zeros_(module.bias)

    def forward(self, idx, targets=None):
        device = idx.device
        b, t = idx.size()
        assert t <= self.config.block_size, f"length {t} is over {self.config.block_size}"
        pos = torch.arange(0, t, dtype=torch.long, device=device)
        x = self.transformer.wte(idx) + self.transformer.wpe(pos)
        for block in self.transformer.h:
            x = block(x)
        x = self.transformer.ln_f(x)
        if targets is not None:
            logits = self.lm_head(x)
            loss = F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1), ignore_index=-1)
        else:
            logits = self.lm_head(x[:, [-1], :])
            loss = None
        return logits, loss
""",
    "GPT(GPTConfig(n_layer=3))",
    TOKENS,
    step="logits, loss = model(x, y)",
    optimizer="AdamW",
)

PROGRAMS["lstm"] = program(
    """
class Tagger(nn.Module):
    def __init__(self, vocab, dim, hidden, layers=2, bidirectional=True):
        super().__init__()
        self.embedding = nn.Embedding(vocab, dim, padding_idx=0)
        self.lstm = nn.LSTM(dim, hidden, num_layers=layers, batch_first=True, bidirectional=bidirectional, dropout=0.1)
        self.fc = nn.Linear(hidden * (2 if bidirectional else 1), 5)

    def forward(self, x):
        x = self.embedding(x)
        out, (h, c) = self.lstm(x)
        hidden = torch.cat((h[-2], h[-1]), dim=1)
        return self.fc(hidden)
""",
    "Tagger(100, 16, 32)",
    SENTENCES,
)

PROGRAMS["gru_series"] = program(
    """
class Forecaster(nn.Module):
    def __init__(self, features, hidden, num_layers):
        super().__init__()
        self.hidden, self.num_layers = hidden, num_layers
        self.gru = nn.GRU(features, hidden, num_layers, batch_first=True)
        self.out = nn.Linear(hidden, 1)

    def forward(self, x):
        h0 = torch.zeros(self.num_layers, x.size(0), self.hidden).to(x.device)
        out, _ = self.gru(x, h0)
        return self.out(out[:, -1, :])
""",
    "Forecaster(8, 16, 2)",
    SERIES,
    "nn.L1Loss()",
)

PROGRAMS["encoder"] = program(
    """
class PositionalEncoding(nn.Module):
    def __init__(self, d_model, dropout=0.1, max_len=50):
        super().__init__()
        self.dropout = nn.Dropout(p=dropout)
        pe = torch.zeros(max_len, d_model)
        position = torch.arange(0, max_len, dtype=torch.float).unsqueeze(1)
        div_term = torch.exp(torch.arange(0, d_model, 2).float() * (-math.log(10000.0) / d_model))
        pe[:, 0::2] = torch.sin(position * div_term)
        pe[:, 1::2] = torch.cos(position * div_term)
        pe = pe.unsqueeze(0)
        self.register_buffer("pe", pe)

    def forward(self, x):
        x = x + self.pe[:, : x.size(1)]
        return self.dropout(x)

class Classifier(nn.Module):
    def __init__(self, vocab=100, d_model=32, nhead=4, nlayers=2):
        super().__init__()
        self.scale = math.sqrt(d_model)
        self.embed = nn.Embedding(vocab, d_model)
        self.pos = PositionalEncoding(d_model)
        layer = nn.TransformerEncoderLayer(d_model, nhead, 64, 0.1, batch_first=True)
        self.encoder = nn.TransformerEncoder(layer, nlayers)
        self.head = nn.Linear(d_model, 5)
        self.init_weights()

    def init_weights(self) -> None:
        self.embed.weight.data.uniform_(-0.1, 0.1)
        self.head.bias.data.zero_()

    def forward(self, src):
        x = self.embed(src) * self.scale
        x = self.encoder(self.pos(x))
        return self.head(x.mean(dim=1))
""",
    "Classifier()",
    SENTENCES,
)
