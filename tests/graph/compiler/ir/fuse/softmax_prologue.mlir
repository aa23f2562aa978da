// run cuda: fuse
// Elementwise work before a softmax is done while it reads; constants and broadcasts are free.
func.func @main(%x: f32[n, 8], %m: f32[8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
  %two = constant() {value = dense<2.0> : tensor<f32>} : () -> f32[]
  %wide = broadcast_to(%m) {shape = ["n", "8"]} : (f32[8]) -> f32[n, 8]
  %a = mul(%x, %two) : (f32[n, 8], f32[]) -> f32[n, 8]
  %b = add(%a, %wide) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
  %s = softmax(%b) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
  %r = mul(%s, %two) : (f32[n, 8], f32[]) -> f32[n, 8]
  return %r : f32[n, 8]
}

// gives
module {
  func.func @main(%arg0: f32[n, 8], %arg1: f32[8]) -> f32[n, 8] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = fused(%arg0, %arg1) ({
    ^bb0(%arg2: f32[n, 8], %arg3: f32[8]):
      %1 = constant() {value = dense<2.000000e+00> : tensor<f32>} : () -> f32[]
      %2 = mul(%arg2, %1) : (f32[n, 8], f32[]) -> f32[n, 8]
      %3 = broadcast_to(%arg3) {shape = ["n", "8"]} : (f32[8]) -> f32[n, 8]
      %4 = add(%2, %3) : (f32[n, 8], f32[n, 8]) -> f32[n, 8]
      %5 = softmax(%4) {axis = 1 : i64} : (f32[n, 8]) -> f32[n, 8]
      %6 = constant() {value = dense<2.000000e+00> : tensor<f32>} : () -> f32[]
      %7 = mul(%5, %6) : (f32[n, 8], f32[]) -> f32[n, 8]
      yield(%7) : (f32[n, 8]) -> ()
    }) : (f32[n, 8], f32[8]) -> f32[n, 8]
    return %0 : f32[n, 8]
  }
}
