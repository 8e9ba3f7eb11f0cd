"""The polynomials and constants of vector math.

Each polynomial is the weighted minimax approximation of the function named below it, lowest order first, found by the
exchange algorithm of Remez in 60 digits. Coefficients were rounded to the format one by one, from the lowest order up,
and those left fitted again after each, so that they make up for it. "error" is the largest weighted error of the
rounded polynomial in exact arithmetic; half a unit in the last place is 2^-24 in float32 and 2^-53 in float64.
"""

from __future__ import annotations

from foretell.codegen.math_lanes import FLOAT32, FLOAT64


def _hex(text: str) -> tuple[float, ...]:
    return tuple(float.fromhex(word) for word in text.split())


EXP = {
    # degree 5, error 2^-26.0
    FLOAT32: _hex(
        """
        0x1.00000cp-1 0x1.555512p-3 0x1.5549cep-5 0x1.1126aap-7 0x1.71c8ccp-10 0x1.9bf698p-13
        """
    ),
    # degree 11, error 2^-56.3
    FLOAT64: _hex(
        """
        0x1.ffffffffffff3p-2 0x1.55555555555b7p-3 0x1.555555555694fp-5 0x1.111111110826dp-7
        0x1.6c16c169bf727p-10 0x1.a01a01b223625p-13 0x1.a01a058329ea7p-16 0x1.71de2a2124db1p-19
        0x1.27e1c92c07b7fp-22 0x1.ae710c8f991b6p-26 0x1.217b0110e44a5p-29 0x1.5e7cf7da5d892p-33
        """
    ),
}
"""(e^r - 1 - r) / r^2 on |r| <= ln 2; error relative to e^r."""

EXP_BY_TABLE = {
    # degree 1, error 2^-29.2
    FLOAT32: _hex("0x1.00022p-1 0x1.5556acp-3"),
    # degree 5, error 2^-58.3
    FLOAT64: _hex(
        """
        0x1.000000000010bp-1 0x1.5555555555139p-3 0x1.555555480d831p-5 0x1.1111112599fd2p-7 0x1.6c1cbdb8d5609p-10
        0x1.a01652008aaf9p-13
        """
    ),
}
"""(e^r - 1 - r) / r^2 on |r| <= ln(2) / 32 (ln(2) / 16); error relative to e^r."""

EXP2_BY_TABLE = {
    # degree 2, error 2^-29.2
    FLOAT32: _hex("0x1.62e43p-1 0x1.ebfff4p-3 0x1.c6acdcp-5"),
    # degree 6, error 2^-58.2
    FLOAT64: _hex(
        """
        0x1.62e42fefa39efp-1 0x1.ebfbdff82c77ap-3 0x1.c6b08d704a986p-5 0x1.3b2ab6ef9e34bp-7
        0x1.5d87fe6d02052p-10 0x1.430e5899fe841p-13 0x1.ffcf7f2b0165ep-17
        """
    ),
}
"""(2^r - 1) / r on |r| <= 1/32 (1/16); error relative to 2^r."""

POWERS_OF_2 = {
    FLOAT32: (
        _hex(
            """
            0x1p0 0x1.0b5586p0 0x1.172b84p0 0x1.2387a6p0 0x1.306fep0 0x1.3dea64p0 0x1.4bfdaep0 0x1.5ab07ep0
            0x1.6a09e6p0 0x1.7a1148p0 0x1.8ace54p0 0x1.9c4918p0 0x1.ae89fap0 0x1.c199bep0 0x1.d5818ep0
            0x1.ea4afap0
            """
        ),
        _hex(
            """
            0x0p0 0x1.8d96d4p-25 -0x1.9c0c22p-27 0x1.964904p-25 0x1.125002p-25 0x1.370be4p-25 -0x1.0a355p-25
            -0x1.00d8acp-27 0x1.26055cp-26 -0x1.05cb44p-25 0x1.67a1cap-28 0x1.a3b5e4p-28 -0x1.f9c304p-27
            -0x1.6961b4p-28 -0x1.a5217cp-28 0x1.61428ep-28
            """
        ),
    ),
    FLOAT64: (
        _hex(
            """
            0x1p0 0x1.172b83c7d517bp0 0x1.306fe0a31b715p0 0x1.4bfdad5362a27p0 0x1.6a09e667f3bcdp0
            0x1.8ace5422aa0dbp0 0x1.ae89f995ad3adp0 0x1.d5818dcfba487p0
            """
        ),
        _hex(
            """
            0x0p0 -0x1.01b15eaa59348p-55 0x1.34d754db0abb6p-55 0x1.690cebb7aafbp-56 -0x1.3b3efbf5e2228p-54
            0x1.db72fc1f0eab4p-55 0x1.c1a7792cb3387p-55 0x1.4a385a63d07a7p-56
            """
        ),
    ),
}
"""2^(j / 16) (2^(j / 8)), a register full, rounded; and for each the part of it that was lost."""

EXPM1 = {
    # degree 4, error 2^-26.1
    FLOAT32: _hex(
        """
        0x1.fffffep-2 0x1.5554aap-3 0x1.55579cp-5 0x1.122c8cp-7 0x1.6ab42ap-10
        """
    ),
    # degree 10, error 2^-61.6
    FLOAT64: _hex(
        """
        0x1p-1 0x1.5555555555559p-3 0x1.5555555555558p-5 0x1.111111110f6fbp-7 0x1.6c16c16c16f2fp-10
        0x1.a01a01afaa5abp-13 0x1.a01a019cc3772p-16 0x1.71ddf90412a83p-19 0x1.27e4fa1c72635p-22
        0x1.af5d7ac4bcf25p-26 0x1.1f39ea4296c0cp-29
        """
    ),
}
"""(e^r - 1 - r) / r^2 on |r| <= ln(2) / 2; error relative to e^r - 1."""

EXP2 = {
    # degree 6, error 2^-26.3
    FLOAT32: _hex(
        """
        0x1p0 0x1.62e43p-1 0x1.ebfb94p-3 0x1.c6af9ep-5 0x1.3b6814p-7 0x1.5ef498p-10 0x1.17986ep-13
        """
    ),
    # degree 11, error 2^-55.9
    FLOAT64: _hex(
        """
        0x1p0 0x1.62e42fefa39efp-1 0x1.ebfbdff82c5b3p-3 0x1.c6b08d704a26fp-5 0x1.3b2ab6fb9dacp-7
        0x1.5d87fe78457adp-10 0x1.430913167c7a5p-13 0x1.ffcbfe669506dp-17 0x1.62bfb4a537f0bp-20
        0x1.b520825d04951p-24 0x1.e63bb51ea5d9ap-28 0x1.f0e9b96a0c03ep-32
        """
    ),
}
"""2^r on |r| <= 1/2; error relative to it. The constant 1 was not fitted."""

SINH = {
    # degree 2, error 2^-25.3
    FLOAT32: _hex(
        """
        0x1.555598p-3 0x1.10f76p-7 0x1.ab4288p-13
        """
    ),
    # degree 6, error 2^-61.8
    FLOAT64: _hex(
        """
        0x1.5555555555556p-3 0x1.111111111101ep-7 0x1.a01a01a037268p-13 0x1.71de3a3b06d81p-19
        0x1.ae646ff4ecd9p-26 0x1.6116f4af66b8fp-33 0x1.b5c891d7beb73p-41
        """
    ),
}
"""(sinh x - x) / x^3 as a polynomial in x^2, on |x| <= 1; error relative to sinh x."""

ERF_SMALL = {
    # degree 6, error 2^-29.4
    FLOAT32: _hex(
        """
        0x1.06eba8p-3 -0x1.81273ep-2 0x1.ce2ce6p-4 -0x1.b7f71ap-6 0x1.53f224p-8 -0x1.a3515ep-11 0x1.4772p-14
        """
    ),
    # degree 11, error 2^-56.0
    FLOAT64: _hex(
        """
        0x1.06eba8214db68p-3 -0x1.812746b0379aap-2 0x1.ce2f21a040856p-4 -0x1.b82ce311fd9c2p-6
        0x1.565bccfb805bcp-8 -0x1.c02db0c8ed559p-11 0x1.f9a2cab11742fp-14 -0x1.f4cb61bbd20cdp-17
        0x1.b98b332bac38p-20 -0x1.5c4f6c20bb363p-23 0x1.d918a13dfcdbfp-27 -0x1.b1aabf143c301p-31
        """
    ),
}
"""erf(x) / x - 1 as a polynomial in x^2, on |x| <= 1; error relative to erf x."""

ERFC_EXPONENT = {
    # degree 6, error 2^-29.8
    FLOAT32: _hex(
        """
        -0x1.0b9462p-11 -0x1.a03fe2p0 -0x1.d76e98p-1 -0x1.306fd8p-3 0x1.01b44p-5 -0x1.15ed5cp-8
        0x1.18b73ap-12
        """
    ),
    # degree 17, error 2^-57.0
    FLOAT64: _hex(
        """
        -0x1.8d878082bbc1dp-21 -0x1.a0be069433156p0 -0x1.d6436ecb6a6e7p-1 -0x1.2f72bf83a13a1p-3
        0x1.c0d290799bfe4p-6 0x1.38cb95593b562p-11 -0x1.6addf8ba19aap-9 0x1.245c5b7175023p-10
        -0x1.9d27b4ec934e7p-13 -0x1.d88c1af926759p-16 0x1.10b2ebb158ea9p-15 -0x1.9f4a486813038p-17
        0x1.99803a5746722p-19 -0x1.1e3e78936bdf9p-21 0x1.1c9e08240f91ap-24 -0x1.81a904d609de4p-28
        0x1.407a53e3ac422p-32 -0x1.ede7cebb3c7f2p-38
        """
    ),
}
"""log2 erfc(x) on 1 <= x <= `ERF_IS_1`; absolute error of erfc x."""

NORMAL_CDF = {
    # degrees 5 and 5, error 2^-27.0
    FLOAT32: (
        _hex("0x1.87d0acp-2 0x1.9342ecp-9 0x1.93168ep-10 -0x1.8bdd3ep-14 -0x1.01c14cp-18 -0x1.7ff8dp-23"),
        _hex("0x1.659228p0 0x1.66a72cp-2 0x1.45d392p-5 0x1.56048cp-9 0x1.aac0b8p-14 0x1.c564cap-20"),
    ),
}
"""erf(x / sqrt 2) / (2 x) - 1/8, numerator and denominator in x^2, on |x| <= 5.4375; absolute error of x times it.
Both were rounded at once, multiplied by whichever of 3000 factors made the least of it."""

LOG = {
    # degree 8, error 2^-27.3
    FLOAT32: _hex(
        """
        -0x1p-1 0x1.555554p-2 -0x1.000228p-2 0x1.99a034p-3 -0x1.54723p-3 0x1.22d66cp-3 -0x1.0d81f6p-3
        0x1.057228p-3 -0x1.38fe4cp-4
        """
    ),
    # degree 20, error 2^-59.1
    FLOAT64: _hex(
        """
        -0x1p-1 0x1.555555555556bp-2 -0x1.ffffffffffe7dp-3 0x1.9999999994d1ap-3 -0x1.555555556aee4p-3
        0x1.2492492762955p-3 -0x1.fffffff3da312p-4 0x1.c71c702bb154bp-4 -0x1.99999a930bd5cp-4
        0x1.745d591ad962dp-4 -0x1.555578b1a7f5bp-4 0x1.3b0d748f51d17p-4 -0x1.2489220a18a36p-4
        0x1.116a0b1235c1p-4 -0x1.00d19c380bf47p-4 0x1.dc9b9dcb10615p-5 -0x1.b446fc246d19ep-5
        0x1.bb7cf6c364677p-5 -0x1.011a6adcb93f6p-4 0x1.d35fef8f19d0cp-5 -0x1.8ebb1f0944c1fp-6
        """
    ),
}
"""(log(1 + f) - f) / f^2 on sqrt(1/2) - 1 <= f <= sqrt(2) - 1; error relative to log(1 + f).
The constant -1/2 was not fitted."""

SIN = {
    # degree 2, error 2^-27.8
    FLOAT32: _hex(
        """
        -0x1.555544p-3 0x1.1106c6p-7 -0x1.991c2cp-13
        """
    ),
    # degree 5, error 2^-57.9
    FLOAT64: _hex(
        """
        -0x1.5555555555548p-3 0x1.111111110f724p-7 -0x1.a01a019be6c4bp-13 0x1.71de35529daabp-19
        -0x1.ae5e49392109dp-26 0x1.5d8a9a5ca0dd3p-33
        """
    ),
}
"""(sin r - r) / r^3 as a polynomial in r^2, on |r| <= 1.003 pi/4; error relative to sin r."""

COS = {
    # degree 2, error 2^-32.9
    FLOAT32: _hex(
        """
        0x1.55554ap-5 -0x1.6c0c24p-10 0x1.99e61cp-16
        """
    ),
    # degree 5, error 2^-63.8
    FLOAT64: _hex(
        """
        0x1.555555555554ap-5 -0x1.6c16c16c14ep-10 0x1.a01a019c5c384p-16 -0x1.27e4f7cd2fe92p-22
        0x1.1ee9c333a8ab9p-29 -0x1.8f99ca40acbbcp-37
        """
    ),
}
"""(cos r - 1 + r^2 / 2) / r^4 as a polynomial in r^2, on |r| <= 1.003 pi/4; error relative to cos r."""

TAN = {
    # degree 5, error 2^-25.7
    FLOAT32: _hex(
        """
        0x1.5554dap-2 0x1.112ec2p-3 0x1.b5685ap-5 0x1.9144c4p-6 0x1.8bc5eap-9 0x1.3585fep-7
        """
    ),
    # degree 13, error 2^-56.1
    FLOAT64: _hex(
        """
        0x1.55555555554e7p-2 0x1.1111111118e74p-3 0x1.ba1ba1b3e191fp-5 0x1.664f49c21c6b6p-6
        0x1.226e0f89c26acp-7 0x1.d6d998f54768p-9 0x1.7d56922d597c6p-10 0x1.3822c25d2a1cfp-11
        0x1.d097412aef376p-13 0x1.21f7990ee764cp-13 -0x1.e3e0ae81b072ap-16 0x1.80a8678f54302p-14
        -0x1.82adb18e59575p-15 0x1.62f2ed5255a31p-16
        """
    ),
}
"""(tan r - r) / r^3 as a polynomial in r^2, on |r| <= 1.003 pi/4; error relative to tan r."""

ASIN = {
    # degree 4, error 2^-27.6
    FLOAT32: _hex(
        """
        0x1.5555c8p-3 0x1.330202p-4 0x1.747c04p-5 0x1.8c3ab8p-6 0x1.595fdcp-5
        """
    ),
    # degree 11, error 2^-55.9
    FLOAT64: _hex(
        """
        0x1.555555555539p-3 0x1.333333336e82fp-4 0x1.6db6db42782e2p-5 0x1.f1c72c39dd0fap-6
        0x1.6e89f4274e2a4p-6 0x1.1c6be3482519dp-6 0x1.c6fd9eb9fc603p-7 0x1.8ec3f08061b67p-7
        0x1.abc6b8fa7cc52p-8 0x1.3ffacdb1957a4p-6 -0x1.09dd1af6f644cp-6 0x1.0570edd1f0b58p-5
        """
    ),
}
"""(asin x - x) / x^3 as a polynomial in x^2, on |x| <= 1/2; error relative to asin x."""

ATAN = {
    # degree 7, error 2^-25.8
    FLOAT32: _hex(
        """
        -0x1.5554dcp-2 0x1.9978ecp-3 -0x1.230a9ap-3 0x1.b4df3cp-4 -0x1.355306p-4 0x1.61f66ep-5
        -0x1.0c249ep-6 0x1.7ec686p-9
        """
    ),
    # degree 18, error 2^-55.0
    FLOAT64: _hex(
        """
        -0x1.555555555544cp-2 0x1.999999998410cp-3 -0x1.2492491fa2038p-3 0x1.c71c709e17245p-4
        -0x1.745d0230e3203p-4 0x1.3b12b2e7d3928p-4 -0x1.11089cfc511a9p-4 0x1.e17816f0a7e59p-5
        -0x1.ad32b919bf5ecp-5 0x1.7ee3f1dbccbcdp-5 -0x1.4f4515d406a2bp-5 0x1.1715c1e3e8e34p-5
        -0x1.a72659e1d0849p-6 0x1.162be0a0a2565p-6 -0x1.2cf6cc44b7253p-7 0x1.f96b4199bd3afp-9
        -0x1.3128ff768c9a8p-10 0x1.d3b8992127469p-13 -0x1.53e38fc947912p-16
        """
    ),
}
"""(atan x - x) / x^3 as a polynomial in x^2, on |x| <= 1; error relative to atan x."""

# --- where results are 0, 1, -1 or infinite: some value past the last that is not -------------------------------------

EXP_ZERO = {FLOAT32: -104.0, FLOAT64: -746.0}
EXP_INFINITE = {FLOAT32: 89.0, FLOAT64: 710.0}
COSH_INFINITE = {FLOAT32: 90.0, FLOAT64: 711.0}
EXPM1_IS_MINUS_1 = {FLOAT32: -18.0, FLOAT64: -38.0}
TANH_IS_1 = {FLOAT32: 9.25, FLOAT64: 19.5}
ERF_IS_1 = {FLOAT32: 3.9375, FLOAT64: 5.9296875}
NORMAL_CDF_IS_1 = 5.5625

FAST_REDUCTION = {FLOAT32: 2.0**16, FLOAT64: 2.0**40}
"""The largest angle that is reduced in three steps."""

# --- powers, always in float64 --------------------------------------------------------------------------------------

LOG2_FOR_POW = _hex(
    """
    0x1.71547652a1ea1p0 -0x1.715476565d726p-1 0x1.ec709ebb929d3p-2 -0x1.71547097e035fp-2
    0x1.277651fae3a3ep-2 -0x1.ec72b570fc4bp-3 0x1.a63f44d7509f1p-3 -0x1.71417465b1baap-3
    0x1.452912a9bf57bp-3 -0x1.252efb2db345dp-3 0x1.2871d4d178b35p-3 -0x1.248a8806063f4p-3
    0x1.3ced41a5cbdddp-4
    """
)
"""log2(1 + f) / f on sqrt(1/2) - 1 <= f <= sqrt(2) - 1, relative; for float32 results. Degree 12, error 2^-35.8."""

EXP2_FOR_POW = _hex(
    """
    0x1p0 0x1.62e430af5e2aap-1 0x1.ebfbce78ed16cp-3 0x1.c6aed9f50012bp-5 0x1.3b38e083a6da1p-7
    0x1.5f476b8a08aa8p-10 0x1.396f20adaa13fp-13
    """
)
"""2^r on |r| <= 1/2, relative; for float32 results. Degree 6, error 2^-28.1."""

LOG_IN_S_TAIL = _hex(
    """
    0x1.9999999999996p-2 0x1.2492492492f51p-2 0x1.c71c71c5968c3p-3 0x1.745d18295a136p-3 0x1.3b1364c7d5c19p-3
    0x1.11206f77b8959p-3 0x1.de3d62587b0b7p-4 0x1.eac647f91bfb6p-4
    """
)
"""(2 atanh s - 2 s - 2/3 s^3) / s^5 as a polynomial in s^2, on |s| <= 3 - sqrt(8), relative to 2 atanh s.
Degree 7, error 2^-73.5."""

TWO_THIRDS = _hex("0x1.5555555555555p-1 0x1.5555555555555p-55")
"""2/3 in two parts."""

# --- constants in parts, the leading ones cut towards zero -----------------------------------------------------------

LN2 = {
    FLOAT32: _hex("0x1.62e4p-1 0x1.7f7d1cp-20"),
    FLOAT64: _hex("0x1.62e42fefa38p-1 0x1.ef35793c7673p-45"),
}
"""ln 2; the first part leaves room for a factor of 8 (11) bits."""

HALF_PI_PARTS = {
    FLOAT32: _hex("0x1.921fb4p0 0x1.4442dp-24 0x1.84698ap-48"),
    FLOAT64: _hex("0x1.921fb54442d18p0 0x1.1a62633145c06p-54 0x1.c1cd129024e09p-107"),
}
"""pi/2 for the fused reduction."""

HALF_PI = {
    FLOAT32: _hex("0x1.921fb6p0 -0x1.777a5cp-25"),
    FLOAT64: _hex("0x1.921fb54442d18p0 0x1.1a62633145c07p-54"),
}
"""pi/2, rounded, and the rest."""

TWO_OVER_PI = (
    0x0000000000000000,
    0xA2F9836E4E441529,
    0xFC2757D1F534DDC0,
    0xDB6295993C439041,
    0xFE5163ABDEBBC561,
    0xB7246E3A424DD2E0,
    0x06492EEA09D1921C,
    0xFE1DEB1CB129A73E,
    0xE88235F52EBB4484,
    0xE99C7026B45F7E41,
    0x3991D639835339F4,
    0x9C845F8BBDF9283B,
    0x1FF897FFDE05980F,
    0xEF2F118B5A0A6D1F,
    0x6D367ECF27CB09B7,
    0x4F463F669E5FEA2D,
    0x7527BAC7EBE5F17B,
    0x3D0739F78A5292EA,
    0x6BFB5FB11F8D5D08,
    0x56033046FC7B6BAB,
)
"""A word before the binary point, and the first 1216 bits behind it."""

EIGHTH_PI_64 = 0x6487ED5110B4611A
"""pi/8 2^64."""
