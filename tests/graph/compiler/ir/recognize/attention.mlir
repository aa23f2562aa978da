// run cpu: canonicalize, recognize
// Scaled by a root, causal by where, heads turned to the front and back.
func.func @main(%q: f32[b, s, 4, 16], %k: f32[b, s, 4, 16], %v: f32[b, s, 4, 16], %seen: i1[b, 1, 1, s]) -> (f32[b, s, 4, 16]) attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
  %qt = transpose(%q) {permutation = array<i64: 0, 2, 1, 3>} : (f32[b, s, 4, 16]) -> f32[b, 4, s, 16]
  %kt = transpose(%k) {permutation = array<i64: 0, 2, 3, 1>} : (f32[b, s, 4, 16]) -> f32[b, 4, 16, s]
  %vt = transpose(%v) {permutation = array<i64: 0, 2, 1, 3>} : (f32[b, s, 4, 16]) -> f32[b, 4, s, 16]
  %scores = matmul(%qt, %kt) {precision = "full"} : (f32[b, 4, s, 16], f32[b, 4, 16, s]) -> f32[b, 4, s, s]
  %root = constant() {value = dense<4.0> : tensor<f32>} : () -> f32[]
  %scaled = div(%scores, %root) : (f32[b, 4, s, s], f32[]) -> f32[b, 4, s, s]
  %zero = constant() {value = dense<0> : tensor<i64>} : () -> i64[]
  %one = constant() {value = dense<1> : tensor<i64>} : () -> i64[]
  %column = iota(%zero, %one) {size = "s", first = "0"} : (i64[], i64[]) -> i64[s]
  %row = reshape(%column) {shape = ["s", "1"]} : (i64[s]) -> i64[s, 1]
  %before = greater_equal(%row, %column) : (i64[s, 1], i64[s]) -> i1[s, s]
  %both = logical_and(%before, %seen) : (i1[s, s], i1[b, 1, 1, s]) -> i1[b, 1, s, s]
  %never = constant() {value = dense<0xFF800000> : tensor<f32>} : () -> f32[]
  %hidden = where(%both, %scaled, %never) : (i1[b, 1, s, s], f32[b, 4, s, s], f32[]) -> f32[b, 4, s, s]
  %top = max(%hidden) {axis = 3} : (f32[b, 4, s, s]) -> f32[b, 4, s, 1]
  %less = sub(%hidden, %top) : (f32[b, 4, s, s], f32[b, 4, s, 1]) -> f32[b, 4, s, s]
  %e = exp(%less) : (f32[b, 4, s, s]) -> f32[b, 4, s, s]
  %sum = sum(%e) {axis = 3} : (f32[b, 4, s, s]) -> f32[b, 4, s, 1]
  %shares = div(%e, %sum) : (f32[b, 4, s, s], f32[b, 4, s, 1]) -> f32[b, 4, s, s]
  %mixed = matmul(%shares, %vt) {precision = "full"} : (f32[b, 4, s, s], f32[b, 4, s, 16]) -> f32[b, 4, s, 16]
  %back = transpose(%mixed) {permutation = array<i64: 0, 2, 1, 3>} : (f32[b, 4, s, 16]) -> f32[b, s, 4, 16]
  return %back : f32[b, s, 4, 16]
}

// gives
module {
  func.func @main(%arg0: f32[b, s, 4, 16], %arg1: f32[b, s, 4, 16], %arg2: f32[b, s, 4, 16], %arg3: i1[b, 1, 1, s]) -> f32[b, s, 4, 16] attributes {heddle.symbols = {b = [1, 9], s = [1, 99]}} {
    %0 = attention(%arg0, %arg1, %arg2, %arg3) {causal = true, layout = "bshd", scale = 2.500000e-01 : f64, softcap = 0.000000e+00 : f64, window = 0 : i64} : (f32[b, s, 4, 16], f32[b, s, 4, 16], f32[b, s, 4, 16], i1[b, 1, 1, s]) -> f32[b, s, 4, 16]
    return %0 : f32[b, s, 4, 16]
  }
}
