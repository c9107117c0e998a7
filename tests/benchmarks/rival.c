/* Estimates and moments of heads as an expert writes them in C, in loops that a compiler vectorises: see `peers.py`.

   keys (R, d, n), values (R, n), projections (H, P, d), points (Q, H, P) and scale, −1/(2b²); laid (H, P + 1, n) and
   weights (H, BLOCK) are room to work in; means (R, Q, H), grams (R, Q, H, H).  Keys in units of the bandwidth lie above
   minus their squares, so that an exponent takes one product for each dimension. */
#include <string.h>

#define BLOCK 256

#if WIDE
typedef long whole;
#define POLYNOMIAL 4.4347712982003767e-10, 7.0737832485031333e-9, 1.0178199571842138e-7, 1.3215435282308488e-6, \
    1.5252733493127489e-5, 1.5403530457112091e-4, 1.3333558146774621e-3, 9.6181291075941201e-3, \
    5.5504108664820083e-2, 2.4022650695910131e-1, 6.9314718055994532e-1, 1.0
#define ROUND __builtin_rint
enum { MANTISSA = 52, BIAS = 1023 };
#else
typedef int whole;
#define POLYNOMIAL 1.32647271401e-3f, 9.67151263996e-3f, 5.55073374347e-2f, 2.40222420854e-1f, 6.93146977599e-1f, 1.0f
#define ROUND __builtin_rintf
enum { MANTISSA = 23, BIAS = 127 };
#endif

static inline REAL power_of_2(REAL t) {
    static const REAL c[] = {POLYNOMIAL};
    t = t < 1 - BIAS ? 1 - BIAS : t;
    const REAL n = ROUND(t), f = t - n;
    REAL p = c[0], scale;
    for (unsigned k = 1; k < sizeof c / sizeof *c; k++) p = p * f + c[k];
    const whole bits = ((whole)n + BIAS) << MANTISSA;
    memcpy(&scale, &bits, sizeof scale);
    return p * scale;
}

typedef REAL vector __attribute__((vector_size(64), aligned(sizeof(REAL))));
#define LANES (64 / (long)sizeof(REAL))

/* Four columns at three vectors of keys, whose sums stay in registers: the last step ends with the keys. */
static void project(const REAL *keys, const REAL *projections, long d, long n, long columns, long per_head, REAL *laid) {
    for (long c = 0; c < columns; c += 4) {
        const long last = columns - c < 4 ? columns - c : 4, step = n < 3 * LANES || last < 4 ? 1 : 3 * LANES;
        for (long begin = 0; begin < n; begin += step) {
            const long i = begin + step < n ? begin : n - step;
            vector s[4][3] = {{{0}}};
            for (long j = 0; j < d && step > 1; j++) {
                const vector *x = (const vector *)(keys + j * n + i);
                for (long m = 0; m < 4; m++)
                    for (long k = 0; k < 3; k++) s[m][k] += projections[(c + m) * d + j] * x[k];
            }
            for (long m = 0; m < last; m++) {
                REAL *row = laid + ((c + m) + (c + m) / per_head) * n + begin, sum = 0;
                for (long j = 0; j < d && step == 1; j++) sum += projections[(c + m) * d + j] * keys[j * n + begin];
                if (step == 1) row[0] = sum;
                else memcpy(row + i - begin, s[m], sizeof s[m]);
            }
        }
    }
}

void rival(const REAL *keys, const REAL *values, const REAL *projections, const REAL *points, REAL scale, long replicates,
           long d, long n, long heads, long queries, long with_gram, REAL *laid, REAL *weights, REAL *means, REAL *grams) {
    const REAL rate = scale * (REAL)1.4426950408889634;
    REAL mass[heads];
    for (long r = 0; r < replicates; r++) {
        const REAL *y = values + r * n;
        project(keys + r * d * n, projections, d, n, heads * P, P, laid);
        for (long h = 0; h < heads; h++) {
            REAL *x = laid + h * (P + 1) * n;
            for (long i = 0; i < n; i++) {
                REAL square = 0;
                for (long j = 0; j < P; j++) square += x[j * n + i] * x[j * n + i];
                x[P * n + i] = rate * square;
            }
        }
        for (long q = 0; q < queries; q++) {
            REAL *total = means + (r * queries + q) * heads, *gram = grams + (r * queries + q) * heads * heads;
            for (long h = 0; h < heads; h++) mass[h] = total[h] = 0;
            if (with_gram) memset(gram, 0, sizeof(REAL) * heads * heads);
            for (long i = 0; i < n; i += BLOCK) {
                const long m = n - i < BLOCK ? n - i : BLOCK;
                for (long h = 0; h < heads; h++) {
                    const REAL *x = laid + h * (P + 1) * n + i, *point = points + (q * heads + h) * P;
                    REAL *w = weights + h * BLOCK, a = 0, b = 0, slope[P], reach = 0;
                    for (long j = 0; j < P; j++) slope[j] = -2 * rate * point[j], reach += rate * point[j] * point[j];
                    for (long k = 0; k < m; k++) {
                        REAL t = x[P * n + k] + reach;
                        for (long j = 0; j < P; j++) t += slope[j] * x[j * n + k];
                        const REAL v = power_of_2(t);
                        a += v;
                        b += v * y[i + k];
                        if (with_gram) w[k] = v;
                    }
                    mass[h] += a, total[h] += b;
                    for (long g = 0; g <= h && with_gram; g += 4) {
                        const REAL *v = weights + g * BLOCK;
                        REAL s0 = 0, s1 = 0, s2 = 0, s3 = 0;
                        for (long k = 0; k < m; k++) {
                            s0 += w[k] * v[k], s1 += w[k] * v[BLOCK + k];
                            s2 += w[k] * v[2 * BLOCK + k], s3 += w[k] * v[3 * BLOCK + k];
                        }
                        const REAL found[] = {s0, s1, s2, s3};
                        for (long k = g; k < g + 4 && k <= h; k++) gram[h * heads + k] += found[k - g];
                    }
                }
            }
            for (long h = 0; h < heads; h++) total[h] /= mass[h];
            for (long h = 0; h < heads && with_gram; h++)
                for (long g = 0; g <= h; g++)
                    gram[g * heads + h] = gram[h * heads + g] /= mass[h] * mass[g];
        }
    }
}
