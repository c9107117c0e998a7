/* Estimates and moments of heads as one writes them in C, for a compiler that vectorises: see `rival.py`.

   keys (R, d, n), values (R, n), projections (H, P, d), points (Q, H, P); projected (H, P, n) and weights (H, BLOCK) are
   room to work in; means (R, Q, H), grams (R, Q, H, H). */
#include <math.h>
#include <string.h>

#define BLOCK 256

static void project(const REAL *keys, const REAL *projections, long d, long n, long rows, REAL *projected) {
    memset(projected, 0, sizeof(REAL) * rows * n);
    for (long i = 0; i < n; i += BLOCK)
        for (long row = 0; row < rows; row++)
            for (long j = 0; j < d; j++) {
                const REAL factor = projections[row * d + j];
                const long m = n - i < BLOCK ? n - i : BLOCK;
                for (long k = 0; k < m; k++) projected[row * n + i + k] += factor * keys[j * n + i + k];
            }
}

void rival(const REAL *keys, const REAL *values, const REAL *projections, const REAL *points, REAL scale, long replicates,
           long d, long n, long heads, long queries, long with_gram, REAL *projected, REAL *weights, REAL *means, REAL *grams) {
    REAL mass[heads];
    for (long r = 0; r < replicates; r++) {
        const REAL *y = values + r * n;
        project(keys + r * d * n, projections, d, n, heads * P, projected);
        for (long q = 0; q < queries; q++) {
            REAL *total = means + (r * queries + q) * heads, *gram = grams + (r * queries + q) * heads * heads;
            for (long h = 0; h < heads; h++) mass[h] = total[h] = 0;
            if (with_gram) memset(gram, 0, sizeof(REAL) * heads * heads);
            for (long i = 0; i < n; i += BLOCK) {
                const long m = n - i < BLOCK ? n - i : BLOCK;
                for (long h = 0; h < heads; h++) {
                    const REAL *x = projected + h * P * n + i, *point = points + (q * heads + h) * P;
                    REAL *w = weights + h * BLOCK, a = 0, b = 0;
                    for (long k = 0; k < m; k++) {
                        REAL square = 0;
                        for (long j = 0; j < P; j++) square += (point[j] - x[j * n + k]) * (point[j] - x[j * n + k]);
                        w[k] = EXP(scale * square);
                        a += w[k];
                        b += w[k] * y[i + k];
                    }
                    mass[h] += a, total[h] += b;
                    for (long g = 0; g <= h && with_gram; g++) {
                        const REAL *v = weights + g * BLOCK;
                        REAL product = 0;
                        for (long k = 0; k < m; k++) product += w[k] * v[k];
                        gram[h * heads + g] += product;
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
