// run cpu: recognize
// A norm whose scale is one for each row, not for each element, is one without, then scaled.
func.func @main(%x: f32[n, 64], %scale: f32[n, 1]) -> (f32[n, 64]) attributes {heddle.symbols = {n = [1, 9]}} {
  %mean = mean(%x) {axis = 1} : (f32[n, 64]) -> f32[n, 1]
  %c = sub(%x, %mean) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
  %square = mul(%c, %c) : (f32[n, 64], f32[n, 64]) -> f32[n, 64]
  %variance = mean(%square) {axis = 1} : (f32[n, 64]) -> f32[n, 1]
  %epsilon = constant() {value = dense<1.0e-5> : tensor<f32>} : () -> f32[]
  %more = add(%variance, %epsilon) : (f32[n, 1], f32[]) -> f32[n, 1]
  %root = sqrt(%more) : (f32[n, 1]) -> f32[n, 1]
  %normal = div(%c, %root) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
  %scaled = mul(%normal, %scale) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
  return %scaled : f32[n, 64]
}

// gives
module {
  func.func @main(%arg0: f32[n, 64], %arg1: f32[n, 1]) -> f32[n, 64] attributes {heddle.symbols = {n = [1, 9]}} {
    %0 = constant() {value = dense<1.000000e+00> : tensor<64xf32>} : () -> f32[64]
    %1 = constant() {value = dense<0.000000e+00> : tensor<64xf32>} : () -> f32[64]
    %2 = layer_norm(%arg0, %0, %1) {epsilon = 1.000000e-05 : f64} : (f32[n, 64], f32[64], f32[64]) -> f32[n, 64]
    %3 = mul(%2, %arg1) : (f32[n, 64], f32[n, 1]) -> f32[n, 64]
    return %3 : f32[n, 64]
  }
}
