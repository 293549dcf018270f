"""What a reading may call, as tables: nothing that is not named here is ever called.

Every row computes a value of its arguments or makes a layer: none reads a file, a network, the environment or a clock,
none takes code as text, none starts another program, and none hands out an object by which more than its row says can
be reached. Functions whose result depends on the numbers in a tensor (`item`, `nonzero`, `unique`) are left out, since
a tensor on meta has none: a model that asks for them is unknown.
"""

from __future__ import annotations

LAYERS = """
Identity Linear Bilinear LazyLinear Flatten Unflatten Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d
ConvTranspose3d Unfold Fold MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d AvgPool1d AvgPool2d
AvgPool3d LPPool1d LPPool2d AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AdaptiveAvgPool1d AdaptiveAvgPool2d
AdaptiveAvgPool3d ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d
ZeroPad1d ZeroPad2d ZeroPad3d ConstantPad1d ConstantPad2d ConstantPad3d CircularPad1d CircularPad2d CircularPad3d
ELU Hardshrink Hardsigmoid Hardtanh Hardswish LeakyReLU LogSigmoid PReLU ReLU ReLU6 RReLU SELU CELU GELU Sigmoid SiLU
Mish Softplus Softshrink Softsign Tanh Tanhshrink Threshold GLU Softmin Softmax Softmax2d LogSoftmax BatchNorm1d
BatchNorm2d BatchNorm3d SyncBatchNorm GroupNorm InstanceNorm1d InstanceNorm2d InstanceNorm3d LayerNorm RMSNorm
LocalResponseNorm RNN LSTM GRU RNNCell LSTMCell GRUCell Transformer TransformerEncoder TransformerDecoder
TransformerEncoderLayer TransformerDecoderLayer MultiheadAttention Dropout Dropout1d Dropout2d Dropout3d AlphaDropout
FeatureAlphaDropout Embedding EmbeddingBag CosineSimilarity PairwiseDistance PixelShuffle PixelUnshuffle Upsample
UpsamplingNearest2d UpsamplingBilinear2d ChannelShuffle Sequential ModuleList ModuleDict ParameterList ParameterDict
Module
L1Loss MSELoss CrossEntropyLoss NLLLoss PoissonNLLLoss GaussianNLLLoss KLDivLoss BCELoss BCEWithLogitsLoss
MarginRankingLoss HingeEmbeddingLoss HuberLoss SmoothL1Loss SoftMarginLoss CosineEmbeddingLoss TripletMarginLoss
MultiLabelSoftMarginLoss MultiMarginLoss
"""
"""Classes of torch.nn."""

FUNCTIONAL = """
conv1d conv2d conv3d conv_transpose1d conv_transpose2d conv_transpose3d unfold fold avg_pool1d avg_pool2d avg_pool3d
max_pool1d max_pool2d max_pool3d max_unpool2d lp_pool2d adaptive_max_pool1d adaptive_max_pool2d adaptive_avg_pool1d
adaptive_avg_pool2d adaptive_avg_pool3d scaled_dot_product_attention threshold relu relu_ hardtanh hardswish relu6 elu
selu celu leaky_relu prelu rrelu glu gelu logsigmoid hardshrink tanhshrink softsign softplus softmin softmax softshrink
log_softmax tanh sigmoid hardsigmoid silu mish batch_norm group_norm instance_norm layer_norm rms_norm
local_response_norm normalize linear bilinear dropout dropout1d dropout2d dropout3d alpha_dropout embedding
embedding_bag one_hot pairwise_distance cosine_similarity binary_cross_entropy binary_cross_entropy_with_logits
poisson_nll_loss cosine_embedding_loss cross_entropy gaussian_nll_loss hinge_embedding_loss kl_div l1_loss mse_loss
margin_ranking_loss nll_loss huber_loss smooth_l1_loss soft_margin_loss triplet_margin_loss pixel_shuffle
pixel_unshuffle pad interpolate upsample grid_sample affine_grid channel_shuffle
"""
"""Functions of torch.nn.functional. `one_hot` needs its number of classes: without it the numbers decide."""

TORCH = """
abs add addbmm addcdiv addcmul addmm amax amin arange argmax argmin as_tensor atan atan2 baddbmm bernoulli bmm
broadcast_to cat cdist ceil chunk clamp clamp_max clamp_min clip clone complex concat concatenate conj cos cosh
cosine_similarity cross cumprod cumsum diag diag_embed diagonal diff div dot dropout einsum empty empty_like eq erf exp
expm1 eye flatten flip floor floor_divide fmod full full_like gather ge gt index_select isfinite isinf isnan kron
le lerp linspace log log10 log1p log2 log_softmax logical_and logical_not logical_or logsumexp lt masked_fill matmul
max maximum mean median meshgrid min minimum mm movedim mul multiply mv narrow ne neg norm numel ones ones_like outer
permute pow prod rand rand_like randint randn randn_like randperm real reciprocal relu remainder repeat_interleave
reshape roll round rsqrt scatter scatter_add select sigmoid sign sin sinh softmax sort split sqrt square squeeze stack
std std_mean sub subtract sum swapaxes t take_along_dim tan tanh tensor tensordot tile topk trace transpose tril triu
true_divide trunc unbind unflatten unsqueeze var var_mean view_as_complex view_as_real vstack hstack where zeros
zeros_like polar is_tensor is_floating_point hypot nan_to_num
"""
"""Functions of torch."""

TENSOR = """
abs abs_ add add_ addcdiv addcmul addmm all amax amin any argmax argmin argsort baddbmm bernoulli_ bfloat16 bmm bool
broadcast_to ceil chunk clamp clamp_ clamp_max clamp_min clip clone contiguous conj cos cosh cross cumprod cumsum detach
detach_ diag diag_embed diagonal diff dim div div_ dot double element_size eq erf exp exp_ expand expand_as expm1
exponential_ fill_ flatten flip float floor floor_divide fmod gather ge gt half index_add index_copy index_fill
index_select int isfinite isinf isnan is_contiguous is_floating_point le lerp log log10 log1p log2 log_softmax
logical_and logical_not logical_or logsumexp long lt masked_fill masked_fill_ matmul max maximum mean median min minimum
mm movedim mul mul_ multiply mv narrow ndimension ne neg neg_ new_empty new_full new_ones new_zeros norm normal_ numel
outer permute pow pow_ prod random_ reciprocal relu relu_ remainder repeat repeat_interleave requires_grad_ reshape
reshape_as roll round rsqrt scatter scatter_ scatter_add scatter_add_ select sigmoid sigmoid_ sign sin sinh size softmax
sort split sqrt square squeeze squeeze_ std stride sub sub_ sum swapaxes t tan tanh tanh_ tile to topk trace transpose
transpose_ tril triu true_divide trunc type_as unbind unflatten unfold uniform_ unsqueeze unsqueeze_ var view view_as
view_as_complex where zero_ nan_to_num
floor_ ceil_ round_ sqrt_ rsqrt_ log_ tril_ triu_ clamp_min_ clamp_max_ neg_ reciprocal_ copy_ t_
unflatten count_nonzero scatter_reduce logcumsumexp cummax cummin aminmax
"""
"""Methods of a tensor."""
TENSOR_DATA = "shape dtype ndim T mT H requires_grad data is_leaf real imag"
"""Attributes of a tensor that are no methods."""
IN_PIECES = "split chunk unbind"
"""Of both: what takes a tensor apart."""

MODULE = """
parameters named_parameters buffers named_buffers modules named_modules children named_children train eval to float
half double bfloat16 cuda cpu type requires_grad_ zero_grad register_buffer register_parameter add_module
append extend insert
items keys values pop update get_submodule state_dict get_parameter forward flatten_parameters
"""
"""Methods of a module of torch that may be called on one."""
MATH = """
sqrt log log2 log10 exp ceil floor prod pow sin cos tan tanh isqrt gcd fabs fmod atan atan2 isclose isnan isinf hypot
erf degrees radians
"""
"""Functions of `math`; those of numpy with the same name, of numbers."""
TEXT = (
    "lower upper startswith endswith split rsplit strip lstrip rstrip removeprefix removesuffix isdigit count find join"
)
"""Methods of a text. `format` reaches attributes, and `replace`, `center` and alike make texts of any length."""
LIST = "append extend insert pop index count reverse copy remove sort clear"
DICT = "get items keys values pop update setdefault copy"
SET = "add discard remove union update copy"
TUPLE = "index count"
BUILTINS = """
abs all any bool callable dict divmod enumerate filter float frozenset getattr hasattr int isinstance len list
map max min object pow print property range reversed round set setattr slice sorted staticmethod classmethod str sum
super tuple type zip NotImplementedError ValueError RuntimeError TypeError Exception KeyError AssertionError
"""
"""Builtins; `type` with one argument. Each is our own function, or is called with values of the reading only."""
DTYPES = """
float32 float float64 double float16 half bfloat16 int64 long int32 int int16 short int8 uint8 bool complex64
"""
NO_VALUES = (
    "torch.nn.init.", "torch.manual_seed", "warnings.", "logging.", "torch.cuda.empty_cache", "torch.cuda.synchronize",
    "torch.set_float32_matmul_precision", "torch.nn.utils.clip_grad", "random.seed", "numpy.random.seed", "time.",
    "torch.cuda.manual_seed", "torch.backends.",
)  # fmt: skip
"""What changes values alone, which a tensor on meta does not have, or prints: it is not called, and None stands for its
result (of torch.nn.init its first argument)."""
RECOMPUTES = ("torch.utils.checkpoint.checkpoint", "torch.utils.checkpoint.checkpoint_sequential")
TYPING = (
    "typing.",
    "typing_extensions.",
    "collections.abc.",
    "jaxtyping.",
    "__future__.",
    "abc.",
    "enum.",
    "torchtyping.",
)
"""Modules whose names stand in annotations and bases, and say nothing of a computation."""
LIGHTNING = ("LightningModule",)
"""Classes of libraries that a module extends, which add no layers and no arithmetic of their own."""
EMPTY_BASES = ("object", "abc.ABC", "typing.Generic", "typing.Protocol", "huggingface_hub.PyTorchModelHubMixin")
"""Bases without anything that a forward pass asks for."""
LOGS = "log log_dict save_hyperparameters print log_image"
"""Methods of those classes that write logs."""


def names(text: str) -> frozenset[str]:
    return frozenset(text.split())
